// Publishes and subscribes. POST /publish?topic=x publishes the request's body; events on the topics of the
// pod's annotation kube32.io/topics reach k32_event, and GET / shows the last of them, the newest first.
#include "answer.h"

enum { KEPT = 8, TOPIC_BYTES = 64, PAYLOAD_BYTES = 256 };

typedef struct {
    uint32_t topic_length;
    uint32_t payload_length;
    char topic[TOPIC_BYTES];
    char payload[PAYLOAD_BYTES];
} Event;

static Event events[KEPT];
static uint64_t received;
static char buffer[1024];

// Text that was cut may end inside a character: the last one goes then.
static uint32_t whole_characters(const char *text, int32_t full, uint32_t cap) {
    uint32_t length = copied(full, cap);
    if (full <= (int32_t)cap)
        return length;
    while (length && ((unsigned char)text[length - 1] & 0xC0) == 0x80)
        length--;
    return length && (unsigned char)text[length - 1] >= 0xC0 ? length - 1 : length;
}

K32_EXPORT(k32_event) void k32_event(void) {
    Event *event = &events[received % KEPT];
    int32_t topic = k32_event_topic(event->topic, TOPIC_BYTES);
    int32_t payload = k32_event_payload(event->payload, PAYLOAD_BYTES);
    event->topic_length = whole_characters(event->topic, topic, TOPIC_BYTES);
    event->payload_length = whole_characters(event->payload, payload, PAYLOAD_BYTES);
    received++;
}

static void show(void) {
    answer_header("Content-Type", "application/json");
    answer_text("{\"received\":");
    answer_number(received);
    answer_text(",\"events\":[");
    for (uint64_t i = 0; i < received && i < KEPT; i++) {
        const Event *event = &events[(received - 1 - i) % KEPT];
        answer_text(i ? ",{\"topic\":" : "{\"topic\":");
        answer_json_string(event->topic, event->topic_length);
        answer_text(",\"payload\":");
        answer_json_string(event->payload, event->payload_length);
        answer_text("}");
    }
    answer_text("]}\n");
}

// The value of `topic` in the query, in place; its length, or 0 when there is none.
static uint32_t topic_of_query(const char *query, uint32_t length, uint32_t *start) {
    static const char key[] = "topic=";
    for (uint32_t i = 0; i < length; i++) {
        if (i && query[i - 1] != '&')
            continue;
        uint32_t same = 0;
        while (key[same] && i + same < length && query[i + same] == key[same])
            same++;
        if (key[same])
            continue;
        *start = i + same;
        uint32_t end = *start;
        while (end < length && query[end] != '&')
            end++;
        return end - *start;
    }
    return 0;
}

static void publish(void) {
    char query[128];
    uint32_t start = 0;
    uint32_t length = topic_of_query(query, copied(k32_req_query(query, sizeof query), sizeof query), &start);
    int32_t body = k32_req_body_len();
    if (!length || body > (int32_t)sizeof buffer) {
        k32_resp_status(400);
        answer_text("give ?topic=NAME and a body of at most 1024 bytes\n");
        return;
    }
    int32_t got = k32_req_body_read(0, buffer, sizeof buffer);
    int32_t receivers = k32_publish(query + start, length, buffer, copied(got, sizeof buffer));
    if (receivers < 0) {
        k32_resp_status(503);
        answer_text("not published; try again\n");
        return;
    }
    answer_header("Content-Type", "application/json");
    answer_text("{\"receivers_here\":");
    answer_number((uint64_t)receivers);
    answer_text("}\n");
}

K32_EXPORT(k32_handle) void k32_handle(void) {
    int32_t path = k32_req_path(buffer, sizeof buffer);
    int is_publish = text_is(buffer, path, "/publish");
    int is_root = text_is(buffer, path, "/");
    int32_t method = k32_req_method(buffer, sizeof buffer);
    if (is_publish && text_is(buffer, method, "POST"))
        publish();
    else if (is_root)
        show();
    else
        answer_not_found();
}
