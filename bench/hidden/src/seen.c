// A program that says which GPUs it can reach:
//   seen MOST
// A line of JSON for each GPU that CUDA lists, for each that NVML lists, for each device file /dev/nvidiaN that it can
// open, N below MOST, and for each that it can open after it has made the file itself, as root in a container may. The
// libraries are loaded at run time; one that is not there lists nothing.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

enum { NVIDIA = 195 }; // the major number of NVIDIA's device files

static void event(const char *name, const char *gpu) {
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	printf("{\"time\":%lld.%06ld,\"event\":\"%s\",\"pid\":%d,\"gpu\":\"%s\"}\n", (long long)now.tv_sec, now.tv_nsec / 1000, name, (int)getpid(), gpu);
}

static void cuda(void) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		return;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
	int (*count)(int *) = (int (*)(int *))dlsym(library, "cuDeviceGetCount");
	int (*get)(int *, int) = (int (*)(int *, int))dlsym(library, "cuDeviceGet");
	int (*uuid)(unsigned char *, int) = (int (*)(unsigned char *, int))dlsym(library, "cuDeviceGetUuid");
	int n = 0, device;
	if (!init || !count || !get || !uuid || init(0) || count(&n))
		return;
	for (int i = 0; i < n; i++) {
		unsigned char u[16];
		char text[64], *at = text;
		if (get(&device, i) || uuid(u, device))
			continue;
		at += sprintf(at, "GPU-");
		for (int b = 0; b < 16; b++)
			at += sprintf(at, "%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", u[b]);
		event("cuda", text);
	}
}

static void nvml(void) {
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (!library)
		return;
	int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
	int (*count)(unsigned *) = (int (*)(unsigned *))dlsym(library, "nvmlDeviceGetCount_v2");
	int (*get)(unsigned, void **) = (int (*)(unsigned, void **))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	int (*uuid)(void *, char *, unsigned) = (int (*)(void *, char *, unsigned))dlsym(library, "nvmlDeviceGetUUID");
	unsigned n = 0;
	if (!init || !count || !get || !uuid || init() || count(&n)) // no other call after an init that failed
		return;
	for (unsigned i = 0; i < n; i++) {
		void *device;
		char text[96];
		if (!get(i, &device) && !uuid(device, text, sizeof text))
			event("nvml", text);
	}
}

static void file(const char *name, const char *path, int minor) {
	char number[16];
	int fd = open(path, O_RDWR);
	if (fd < 0)
		return;
	close(fd);
	snprintf(number, sizeof number, "%d", minor);
	event(name, number);
}

int main(int argc, char **argv) {
	int most = argc == 2 ? atoi(argv[1]) : 0;
	event("start", "");
	cuda();
	nvml();
	for (int i = 0; i < most; i++) {
		char path[64];
		snprintf(path, sizeof path, "/dev/nvidia%d", i);
		file("file", path, i);
		snprintf(path, sizeof path, "/dev/made-%d", i);
		if (!mknod(path, S_IFCHR | 0600, makedev(NVIDIA, (unsigned)i)))
			file("made", path, i);
	}
	event("exit", "");
	fflush(stdout);
	return 0;
}
