"""The pods that are measured, as WAT: no C compiler is needed for a pod of any size."""

import wasmtime

PAGE = 65536


def stateful(pages: int) -> bytes:
    """A request pod of `pages` pages, all of them filled, with a mutable global and a function table.

    GET answers 8 bytes: the count of requests as u32, then the u32 of its memory's last word.
    """
    return assemble(
        f"""(module
          (import "env" "k32_resp_write" (func $write (param i32 i32) (result i32)))
          (memory (export "memory") {pages})
          (global $count (mut i32) (i32.const 0))
          (table 4 funcref)
          (elem (i32.const 0) $one $two)
          (type $step (func (param i32) (result i32)))
          (func $one (type $step) (i32.add (local.get 0) (i32.const 1)))
          (func $two (type $step) (i32.add (local.get 0) (i32.const 2)))
          (func (export "k32_init") (local $at i32) (local $x i32)
            (local.set $x (i32.const 1))
            (loop $fill
              (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))
              (i32.store (local.get $at) (local.get $x))
              (local.set $at (i32.add (local.get $at) (i32.const 4)))
              (br_if $fill (i32.lt_u (local.get $at) (i32.const {pages * PAGE})))))
          (func (export "k32_handle")
            (global.set $count (call_indirect (type $step) (global.get $count) (i32.const 0)))
            (i32.store (i32.const 16) (global.get $count))
            (i32.store (i32.const 20) (i32.load (i32.const {pages * PAGE - 4})))
            (drop (call $write (i32.const 16) (i32.const 8)))))"""
    )


def host_calls(function: str, signature: str, call: str, count: int) -> bytes:
    """A pod whose k32_handle makes one host call `count` times; its k32_tick does nothing at all."""
    return assemble(
        f"""(module
          (import "env" "{function}" (func $f {signature}))
          (memory (export "memory") 1)
          (func (export "k32_handle") (local $i i32)
            (loop $again
              {call}
              (local.set $i (i32.add (local.get $i) (i32.const 1)))
              (br_if $again (i32.lt_u (local.get $i) (i32.const {count})))))
          (func (export "k32_tick")))"""
    )


def assemble(wat: str) -> bytes:
    """WAT to a binary module."""
    return bytes(wasmtime.wat2wasm(wat))
