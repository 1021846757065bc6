"""kube32-build: renders the contract for C and C++; boards and flashing come with the firmware."""
