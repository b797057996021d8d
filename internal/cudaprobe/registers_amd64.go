package cudaprobe

// canGuard: the registers of a call are known here.
const canGuard = true
