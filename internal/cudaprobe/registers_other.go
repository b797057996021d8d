//go:build !amd64

package cudaprobe

const (
	ptR9, ptR8, ptAX, ptCX, ptDX, ptSI, ptDI, ptIP, ptSP = 0, 0, 0, 0, 0, 0, 0, 0, 0
)

// canGuard: on other processors denying is not written yet.
const canGuard = false
