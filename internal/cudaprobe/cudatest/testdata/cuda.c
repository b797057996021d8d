// A library with the names of the CUDA driver's calls, which do nothing, or wait
// as long as the caller says. For tests of the probes on these names.
#include <unistd.h>

#include "dispatched.h"

// How long a synchronising call waits: microseconds, and while it is held.
int laxity_wait_us;
volatile int laxity_hold, laxity_held;

static int wait_for_gpu(void) {
	if (laxity_wait_us > 0) usleep(laxity_wait_us);
	while (laxity_hold) { laxity_held = 1; usleep(100); }
	laxity_held = 0;
	return 0;
}

static __attribute__((noinline, noipa)) void nothing(void) {}

// The compiler must not fold equal functions into one address, nor leave out the
// push at their begin, which only functions that call others need.
#define CALL(name, body) __attribute__((noinline, noipa)) int name(void) { nothing(); body; }

CALL(cuInit, return 0)
CALL(cuDriverGetVersion, return 0)
__attribute__((noinline, noipa)) int cuCtxCreate_v2(void **context, unsigned flags, int device) {
	static char handles[64];
	nothing();
	(void)flags;
	if (context) *context = &handles[device & 63];
	return 0;
}
CALL(cuCtxCreate_v4, return 0)
CALL(cuCtxDestroy_v2, return 0)
CALL(cuDevicePrimaryCtxRelease_v2, return 0)
CALL(cuLaunchKernel, return 0)
static __attribute__((used)) CALL(launch, return 0)
DISPATCHED(cuLaunchKernel_ptsz, launch)
CALL(cuLaunchKernelEx, return 0)
CALL(cuCtxSynchronize, return wait_for_gpu())
CALL(cuStreamSynchronize, return wait_for_gpu())
static __attribute__((used)) CALL(synchronize, return wait_for_gpu())
DISPATCHED(cuStreamSynchronize_ptsz, synchronize)
CALL(cuEventSynchronize, return wait_for_gpu())
CALL(cuMemcpyDtoH_v2, return wait_for_gpu())
CALL(cuMemcpyDtoHAsync_v2, return wait_for_gpu())
