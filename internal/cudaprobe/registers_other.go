//go:build !amd64

package cudaprobe

// canGuard: on other processors denying is not written yet.
const canGuard = false
