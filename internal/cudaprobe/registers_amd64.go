package cudaprobe

// Offsets in the kernel's struct pt_regs, as uprobe programs see it.
const (
	ptR9, ptR8, ptAX, ptCX, ptDX, ptSI, ptDI, ptIP, ptSP = 64, 72, 80, 88, 96, 104, 112, 128, 152
)

// canGuard: the registers of a call are known here.
const canGuard = true
