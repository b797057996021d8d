// A stand-in for libcuda.so.1 that computes on a simulated GPU.
//
// It speaks the protocol of package sim (protocol.go) over the unix socket that
// LAXITY_SIM_SOCKET names. Device memory has a size and no content: what is
// copied from the device is zeros. All kernels of a process on one GPU run in
// order, whatever their stream. A launch costs what a naive n×n matrix
// multiplication by that many threads would (threads = n², 2n³ operations), or
// LAXITY_SIM_KERNEL_SECONDS. The first cuInit takes LAXITY_SIM_INIT_SECONDS, or no
// time. LAXITY_SIM_WATTS is what the GPU draws beyond its idle power while the process
// computes. NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES
// (numbers or UUIDs) choose the GPUs.
//
// Threads may call at once: each call that waits has a connection of its own.
// After a fork the child is as if it had never called cuInit, as with the real
// library, and may call it.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define ALIAS(of) __attribute__((visibility("default"), alias(#of)))

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_UNKNOWN = 999,
};

#define MAX_DEVICES 64
#define LINE 512

// ---- the connection to the server

struct conn {
	int fd;
	int idle;
	int broken;
	struct conn *next;
};

struct device {
	int server; // its number there
	char uuid[64];
	char name[128];
	uint64_t memory, piece_in, piece_out;
	int opens;      // contexts of this process on it
	uint64_t last;  // number of the last kernel launched
};

typedef struct context {
	struct device *dev;
	int primary;
} *CUcontext;

typedef struct stream {
	uint64_t last; // number of the last kernel launched into it
} *CUstream;

typedef struct event {
	struct device *dev; // NULL until recorded
	uint64_t number;
} *CUevent;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // guards what follows
static struct conn *conns;
static struct device devices[MAX_DEVICES];
static int device_count;
static int initialized;
static struct context primaries[MAX_DEVICES];
static int primary_refs[MAX_DEVICES];

static __thread CUcontext current;

static int send_all(int fd, const char *text, size_t size) {
	while (size > 0) {
		ssize_t n = send(fd, text, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		text += n;
		size -= (size_t)n;
	}
	return 0;
}

// receive_line reads one line, without its end; what does not fit is dropped.
static int receive_line(int fd, char *line) {
	size_t used = 0;
	for (;;) {
		char chunk[LINE];
		ssize_t n = recv(fd, chunk, sizeof chunk, 0);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -1;
		for (ssize_t i = 0; i < n; i++) {
			if (chunk[i] == '\n') { // one answer per request: nothing follows
				line[used] = 0;
				return 0;
			}
			if (used < LINE - 1)
				line[used++] = chunk[i];
		}
	}
}

static CUresult result_of(const char *line) {
	static const struct {
		const char *code;
		CUresult result;
	} known[] = {
		{"err memory ", CUDA_ERROR_OUT_OF_MEMORY},  {"err device ", CUDA_ERROR_INVALID_DEVICE},
		{"err context ", CUDA_ERROR_INVALID_CONTEXT}, {"err invalid ", CUDA_ERROR_INVALID_VALUE},
		{"err lost ", CUDA_ERROR_DEVICE_UNAVAILABLE}, {"err process ", CUDA_ERROR_INVALID_VALUE},
		{"err state ", CUDA_ERROR_ILLEGAL_STATE},     {"err ready ", CUDA_ERROR_NOT_READY},
		{"err support ", CUDA_ERROR_NOT_SUPPORTED},
	};
	if (!strncmp(line, "ok", 2))
		return CUDA_SUCCESS;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (!strncmp(line, known[i].code, strlen(known[i].code)))
			return known[i].result;
	return CUDA_ERROR_UNKNOWN;
}

static int connect_as(const char *greeting, char *hello) {
	const char *path = getenv("LAXITY_SIM_SOCKET");
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	if (!path || strlen(path) >= sizeof addr.sun_path)
		return -1;
	strcpy(addr.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&addr, sizeof addr) < 0 || send_all(fd, greeting, strlen(greeting)) < 0 ||
	    receive_line(fd, hello) < 0 || result_of(hello) != CUDA_SUCCESS) {
		close(fd);
		return -1;
	}
	return fd;
}

static int connect_server(char *hello) { return connect_as("laxity-sim 1 tenant\n", hello); }

// take returns an idle connection, or a new one; NULL when there is no server.
static struct conn *take(void) {
	pthread_mutex_lock(&lock);
	for (struct conn *c = conns; c; c = c->next)
		if (c->idle && !c->broken) {
			c->idle = 0;
			pthread_mutex_unlock(&lock);
			return c;
		}
	pthread_mutex_unlock(&lock);
	char hello[LINE];
	int fd = connect_server(hello);
	struct conn *c = fd < 0 ? NULL : calloc(1, sizeof *c);
	if (!c) {
		if (fd >= 0)
			close(fd);
		return NULL;
	}
	c->fd = fd;
	pthread_mutex_lock(&lock);
	c->next = conns;
	conns = c;
	pthread_mutex_unlock(&lock);
	return c;
}

// give returns a connection. A broken one stays in the list, closed.
static void give(struct conn *c, int broken) {
	pthread_mutex_lock(&lock);
	if (broken) {
		close(c->fd);
		c->fd = -1;
		c->broken = 1;
	}
	c->idle = 1;
	pthread_mutex_unlock(&lock);
}

// ask sends one request and waits for its answer, which it leaves in line.
__attribute__((format(printf, 2, 3))) static CUresult ask(char *line, const char *format, ...) {
	struct conn *c = take();
	if (!c)
		return CUDA_ERROR_UNKNOWN;
	char request[LINE];
	va_list args;
	va_start(args, format);
	vsnprintf(request, sizeof request, format, args);
	va_end(args);
	int broken = send_all(c->fd, request, strlen(request)) < 0 || receive_line(c->fd, line) < 0;
	give(c, broken);
	return broken ? CUDA_ERROR_UNKNOWN : result_of(line);
}

// The agent is a thread that answers the server: what the checkpoint API does to a
// process is done by the process's own threads, so a frozen one must not answer.
static int agent_fd = -1;

static void *run_agent(void *unused) {
	char line[LINE];
	int fd = agent_fd;
	(void)unused;
	while (receive_line(fd, line) == 0 && send_all(fd, "ok\n", 3) == 0)
		;
	return NULL;
}

static void start_agent(void) {
	char hello[LINE];
	pthread_t thread;
	sigset_t all, old;
	if (agent_fd >= 0 || (agent_fd = connect_as("laxity-sim 1 agent\n", hello)) < 0)
		return; // a server without agents does without
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); // signals are the program's own threads'
	if (!pthread_create(&thread, NULL, run_agent, NULL))
		pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void after_fork_in_child(void) {
	pthread_mutex_init(&lock, NULL);
	if (agent_fd >= 0)
		close(agent_fd);
	agent_fd = -1;
	for (struct conn *c = conns, *next; c; c = next) {
		next = c->next;
		if (c->fd >= 0)
			close(c->fd);
		free(c);
	}
	conns = NULL;
	device_count = initialized = 0;
	memset(devices, 0, sizeof devices);
	memset(primary_refs, 0, sizeof primary_refs);
	current = NULL;
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&lock); }

// ---- devices

// select_devices keeps the devices that a comma-separated list names, in its
// order; as CUDA does, it stops at the first that does not exist.
static void select_devices(const char *list) {
	struct device kept[MAX_DEVICES];
	int count = 0;
	char copy[4096], *save = NULL;
	snprintf(copy, sizeof copy, "%s", list);
	for (char *word = strtok_r(copy, ",", &save); word && count < MAX_DEVICES; word = strtok_r(NULL, ",", &save)) {
		char *end;
		long index = strtol(word, &end, 10);
		int found = -1;
		if (*word && !*end)
			found = index >= 0 && index < device_count ? (int)index : -1;
		else
			for (int i = 0; i < device_count && found < 0; i++)
				if (!strncmp(devices[i].uuid, word, strlen(word)))
					found = i;
		if (found < 0)
			break;
		kept[count++] = devices[found];
	}
	memcpy(devices, kept, sizeof *kept * (size_t)count);
	device_count = count;
}

static CUresult read_devices(int count) {
	device_count = 0;
	for (int i = 0; i < count && i < MAX_DEVICES; i++) {
		char line[LINE];
		struct device d = {.server = i};
		CUresult r = ask(line, "device %d\n", i);
		if (r == CUDA_ERROR_DEVICE_UNAVAILABLE)
			continue;
		if (r)
			return r;
		if (sscanf(line, "ok %63s %lu %lu %lu %127[^\n]", d.uuid, &d.memory, &d.piece_in, &d.piece_out, d.name) != 5)
			return CUDA_ERROR_UNKNOWN;
		devices[device_count++] = d;
	}
	const char *visible = getenv("NVIDIA_VISIBLE_DEVICES");
	if (visible && *visible && strcmp(visible, "all"))
		select_devices(visible);
	visible = getenv("CUDA_VISIBLE_DEVICES");
	if (visible)
		select_devices(visible);
	return device_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

static void register_fork(void) { pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child); }

// nap sleeps in pieces, so that a process that is frozen meanwhile has it still to do.
static void nap(double seconds) {
	for (; seconds > 0; seconds -= 0.005)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

API CUresult cuInit(unsigned flags) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_once(&once, register_fork);
	pthread_mutex_lock(&starting);
	CUresult r = CUDA_SUCCESS;
	if (!initialized) {
		char hello[LINE];
		int count = 0;
		int fd = connect_server(hello);
		if (fd < 0 || sscanf(hello, "ok %d", &count) != 1)
			r = CUDA_ERROR_NO_DEVICE;
		else
			r = read_devices(count);
		if (fd >= 0)
			close(fd);
		initialized = r == CUDA_SUCCESS;
		if (initialized) {
			const char *takes = getenv("LAXITY_SIM_INIT_SECONDS");
			start_agent();
			nap(takes ? atof(takes) : 0);
		}
	}
	pthread_mutex_unlock(&starting);
	return r;
}

static CUresult device_at(CUdevice i, struct device **d) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (i < 0 || i >= device_count)
		return CUDA_ERROR_INVALID_DEVICE;
	*d = &devices[i];
	return CUDA_SUCCESS;
}

API CUresult cuDriverGetVersion(int *version) {
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = 13000;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	*count = device_count;
	return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
	struct device *d;
	CUresult r = device_at(ordinal, &d);
	if (!r)
		*device = ordinal;
	return r;
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (!r && (!name || size <= 0))
		r = CUDA_ERROR_INVALID_VALUE;
	if (!r)
		snprintf(name, (size_t)size, "%s", d->name);
	return r;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (!r)
		*bytes = d->memory;
	return r;
}

API CUresult cuDeviceGetUuid_v2(unsigned char *uuid, CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (r)
		return r;
	memset(uuid, 0, 16);
	int digits = 0;
	const char *p = strchr(d->uuid, '-'); // after the GPU- or MIG-
	for (p = p ? p : d->uuid; *p && digits < 32; p++) {
		const char *hex = "0123456789abcdef", *at = strchr(hex, *p | 0x20);
		if (*p == '-' || !at)
			continue;
		uuid[digits / 2] |= (unsigned char)((at - hex) << (digits % 2 ? 0 : 4));
		digits++;
	}
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetUuid(unsigned char *uuid, CUdevice device) ALIAS(cuDeviceGetUuid_v2);

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (r)
		return r;
	switch (attribute) {
	case 1: *value = 1024; break; // MAX_THREADS_PER_BLOCK
	case 10: *value = 32; break;  // WARP_SIZE
	case 16: *value = 132; break; // MULTIPROCESSOR_COUNT
	case 75: *value = 9; break;   // COMPUTE_CAPABILITY_MAJOR
	default: *value = 0;
	}
	return CUDA_SUCCESS;
}

// ---- contexts

// open_context counts a context of this process on d; the first one is made.
static CUresult open_context(struct device *d) {
	char line[LINE];
	do { // piece by piece, so that a frozen process gets no further
		CUresult r = ask(line, "open %d\n", d->server); // a second open is the same context
		if (r)
			return r;
	} while (!strcmp(line, "ok more"));
	const char *watts = getenv("LAXITY_SIM_WATTS");
	if (watts && *watts) {
		CUresult r = ask(line, "power %d %.0f\n", d->server, atof(watts) * 1e3);
		if (r)
			return r;
	}
	pthread_mutex_lock(&lock);
	d->opens++;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

static CUresult close_context(struct device *d) {
	char line[LINE];
	pthread_mutex_lock(&lock);
	int left = --d->opens;
	if (!left)
		d->last = 0;
	pthread_mutex_unlock(&lock);
	return left ? CUDA_SUCCESS : ask(line, "close %d\n", d->server);
}

static CUresult create_context(CUcontext *context, CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (r)
		return r;
	CUcontext c = calloc(1, sizeof *c);
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if ((r = open_context(d))) {
		free(c);
		return r;
	}
	c->dev = d;
	*context = current = c;
	return CUDA_SUCCESS;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device) {
	(void)flags;
	return create_context(context, device);
}

API CUresult cuCtxCreate_v3(CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device) {
	(void)affinity, (void)count, (void)flags;
	return create_context(context, device);
}

API CUresult cuCtxCreate_v4(CUcontext *context, void *params, unsigned flags, CUdevice device) {
	(void)params, (void)flags;
	return create_context(context, device);
}

API CUresult cuCtxDestroy_v2(CUcontext context) {
	if (!context || context->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult r = close_context(context->dev);
	if (current == context)
		current = NULL;
	free(context);
	return r;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (r)
		return r;
	pthread_mutex_lock(&lock);
	int first = primary_refs[device]++ == 0;
	primaries[device] = (struct context){.dev = d, .primary = 1};
	pthread_mutex_unlock(&lock);
	if (first && (r = open_context(d))) {
		pthread_mutex_lock(&lock);
		primary_refs[device]--;
		pthread_mutex_unlock(&lock);
		return r;
	}
	*context = &primaries[device];
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
	struct device *d;
	CUresult r = device_at(device, &d);
	if (r)
		return r;
	pthread_mutex_lock(&lock);
	int held = primary_refs[device];
	if (held > 0)
		primary_refs[device]--;
	pthread_mutex_unlock(&lock);
	if (!held)
		return CUDA_ERROR_INVALID_CONTEXT;
	return held == 1 ? close_context(d) : CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
	struct device *d;
	(void)flags;
	return device_at(device, &d);
}

API CUresult cuCtxSetCurrent(CUcontext context) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	current = context;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = current;
	return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = (CUdevice)(current->dev - devices);
	return CUDA_SUCCESS;
}

// here returns the device of the current context.
static CUresult here(struct device **d) {
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*d = current->dev;
	return CUDA_SUCCESS;
}

// ---- modules: any image has every function

struct function {
	char name[128];
};

static CUresult load_module(void **module, const void *image) {
	struct device *d;
	CUresult r = here(&d);
	if (r)
		return r;
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	*module = malloc(1);
	return *module ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuModuleLoadData(void **module, const void *image) { return load_module(module, image); }

API CUresult cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values) {
	(void)count, (void)options, (void)values;
	return load_module(module, image);
}

API CUresult cuModuleUnload(void *module) {
	free(module);
	return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	struct function *f = calloc(1, sizeof *f); // lives as long as the process, as modules mostly do
	if (!f)
		return CUDA_ERROR_OUT_OF_MEMORY;
	snprintf(f->name, sizeof f->name, "%s", name);
	*function = f;
	return CUDA_SUCCESS;
}

// ---- memory

static CUresult allocate(CUdeviceptr *address, size_t bytes) {
	struct device *d;
	CUresult r = here(&d);
	char line[LINE];
	if (r)
		return r;
	if (!address || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if ((r = ask(line, "alloc %d %zu\n", d->server, bytes)))
		return r;
	return sscanf(line, "ok %lu", address) == 1 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult release(CUdeviceptr address) {
	struct device *d;
	CUresult r = here(&d);
	char line[LINE];
	if (r || !address)
		return r;
	return ask(line, "free %d %lu\n", d->server, address);
}

// Each is a function of its own, not an alias: a probe on one name must fire
// for that name only.
API CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) { return allocate(address, bytes); }
API CUresult cuMemFree_v2(CUdeviceptr address) { return release(address); }

API CUresult cuMemAllocAsync(CUdeviceptr *address, size_t bytes, CUstream stream) {
	(void)stream;
	return allocate(address, bytes);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, size_t bytes, void *pool, CUstream stream) {
	(void)pool, (void)stream;
	return allocate(address, bytes);
}

API CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned flags) {
	(void)flags;
	return allocate(address, bytes);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
	(void)stream;
	return release(address);
}

API CUresult cuMemCreate(CUdeviceptr *handle, size_t bytes, const void *properties, unsigned long long flags) {
	(void)properties, (void)flags;
	return allocate(handle, bytes);
}

API CUresult cuMemRelease(CUdeviceptr handle) { return release(handle); }

API CUresult cuMemGetInfo_v2(size_t *available, size_t *total) {
	struct device *d;
	CUresult r = here(&d);
	char line[LINE];
	if (r || (r = ask(line, "memory %d\n", d->server)))
		return r;
	return sscanf(line, "ok %zu %zu", available, total) == 2 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

// copy asks for one piece after the other, so that a process that is frozen in
// between makes no progress.
static CUresult copy(const char *way, char *target, size_t bytes) {
	struct device *d;
	CUresult r = here(&d);
	if (r)
		return r;
	uint64_t piece = target ? d->piece_out : d->piece_in;
	while (bytes > 0 && !r) {
		char line[LINE];
		size_t now = bytes < piece ? bytes : piece;
		r = ask(line, "copy %d %s %zu\n", d->server, way, now);
		if (target && !r) {
			memset(target, 0, now);
			target += now;
		}
		bytes -= now;
	}
	return r;
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
	if (bytes && (!to || !from))
		return CUDA_ERROR_INVALID_VALUE;
	return copy("in", NULL, bytes);
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
	if (bytes && (!to || !from))
		return CUDA_ERROR_INVALID_VALUE;
	return copy("out", to, bytes);
}

// With pageable memory the asynchronous copies are synchronous in effect.
API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
	(void)stream;
	if (bytes && (!to || !from))
		return CUDA_ERROR_INVALID_VALUE;
	return copy("in", NULL, bytes);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
	(void)stream;
	if (bytes && (!to || !from))
		return CUDA_ERROR_INVALID_VALUE;
	return copy("out", to, bytes);
}

// ---- kernels

static CUresult launch(double threads, CUstream stream) {
	struct device *d;
	CUresult r = here(&d);
	char line[LINE];
	uint64_t number;
	if (r)
		return r;
	if (!(threads >= 1))
		return CUDA_ERROR_INVALID_VALUE;
	const char *fixed = getenv("LAXITY_SIM_KERNEL_SECONDS");
	if (fixed && *fixed)
		r = ask(line, "launchns %d %.0f\n", d->server, atof(fixed) * 1e9);
	else
		r = ask(line, "launch %d %.17g\n", d->server, 2 * threads * sqrt(threads));
	if (r)
		return r;
	if (sscanf(line, "ok %lu", &number) != 1)
		return CUDA_ERROR_UNKNOWN;
	pthread_mutex_lock(&lock);
	if (number > d->last)
		d->last = number;
	if (stream)
		stream->last = number;
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

API CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
			    unsigned shared, CUstream stream, void **params, void **extra) {
	(void)shared, (void)params, (void)extra;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	return launch((double)gx * gy * gz * bx * by * bz, stream);
}

struct launch_config { // CUlaunchConfig
	unsigned gx, gy, gz, bx, by, bz, shared;
	CUstream stream;
	void *attributes;
	unsigned count;
};

API CUresult cuLaunchKernelEx(const struct launch_config *c, void *function, void **params, void **extra) {
	(void)params, (void)extra;
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	return launch((double)c->gx * c->gy * c->gz * c->bx * c->by * c->bz, c->stream);
}

// A graph is not recorded here: launching one costs as much as one kernel of a
// million threads.
API CUresult cuGraphLaunch(void *graph, CUstream stream) {
	(void)graph;
	return launch(1 << 20, stream);
}

static CUresult await(struct device *d, uint64_t number) {
	char line[LINE];
	return ask(line, "sync %d %lu\n", d->server, number);
}

static CUresult query(struct device *d, uint64_t number) {
	char line[LINE];
	CUresult r = ask(line, "query %d %lu\n", d->server, number);
	if (r)
		return r;
	return strcmp(line, "ok 1") ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult synchronize(void) {
	struct device *d;
	CUresult r = here(&d);
	return r ? r : await(d, 0);
}

API CUresult cuCtxSynchronize(void) { return synchronize(); }

API CUresult cuCtxSynchronize_v2(CUcontext context) {
	return context ? await(context->dev, 0) : synchronize();
}

// ---- streams and events

API CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
	struct device *d;
	CUresult r = here(&d);
	(void)flags;
	if (r)
		return r;
	*stream = calloc(1, sizeof **stream);
	return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuStreamDestroy_v2(CUstream stream) {
	free(stream);
	return CUDA_SUCCESS;
}

// last_of is the last kernel of a stream; the default stream waits for all.
static uint64_t last_of(struct device *d, CUstream stream) {
	pthread_mutex_lock(&lock);
	uint64_t number = stream ? stream->last : d->last;
	pthread_mutex_unlock(&lock);
	return number;
}

API CUresult cuStreamSynchronize(CUstream stream) {
	struct device *d;
	CUresult r = here(&d);
	if (r)
		return r;
	uint64_t number = last_of(d, stream);
	return number ? await(d, number) : CUDA_SUCCESS;
}

API CUresult cuStreamQuery(CUstream stream) {
	struct device *d;
	CUresult r = here(&d);
	if (r)
		return r;
	uint64_t number = last_of(d, stream);
	return number ? query(d, number) : CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *event, unsigned flags) {
	(void)flags;
	*event = calloc(1, sizeof **event);
	return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuEventDestroy_v2(CUevent event) {
	free(event);
	return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
	struct device *d;
	CUresult r = here(&d);
	if (r)
		return r;
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	event->dev = d;
	event->number = last_of(d, stream);
	return CUDA_SUCCESS;
}

API CUresult cuEventSynchronize(CUevent event) {
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return event->dev && event->number ? await(event->dev, event->number) : CUDA_SUCCESS;
}

API CUresult cuEventQuery(CUevent event) {
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	return event->dev && event->number ? query(event->dev, event->number) : CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
	(void)milliseconds, (void)start, (void)end;
	return CUDA_ERROR_NOT_SUPPORTED; // the protocol carries no time stamps
}

// ---- checkpoint: of any process, by its PID on the host

struct lock_args { // CUcheckpointLockArgs
	unsigned timeout_ms, reserved0;
	uint64_t reserved1[7];
};

static CUresult step(const char *name, int pid, const void *args) {
	static const uint64_t zeros[8];
	char line[LINE];
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (args && memcmp(args, zeros, sizeof zeros))
		return CUDA_ERROR_INVALID_VALUE;
	return ask(line, "%s %d\n", name, pid);
}

API CUresult cuCheckpointProcessGetState(int pid, int *state) {
	char line[LINE];
	CUresult r;
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (!state)
		return CUDA_ERROR_INVALID_VALUE;
	if ((r = ask(line, "state %d\n", pid)))
		return r;
	return sscanf(line, "ok %d", state) == 1 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

API CUresult cuCheckpointProcessLock(int pid, const struct lock_args *args) {
	char line[LINE];
	if (!initialized)
		return CUDA_ERROR_NOT_INITIALIZED;
	for (int i = 0; args && i < 7; i++)
		if (args->reserved0 || args->reserved1[i])
			return CUDA_ERROR_INVALID_VALUE;
	return ask(line, "lock %d %u\n", pid, args ? args->timeout_ms : 0);
}

API CUresult cuCheckpointProcessCheckpoint(int pid, const void *args) { return step("checkpoint", pid, args); }
API CUresult cuCheckpointProcessRestore(int pid, const void *args) { return step("restore", pid, args); }
API CUresult cuCheckpointProcessUnlock(int pid, const void *args) { return step("unlock", pid, args); }

// ---- errors, and finding functions

static const struct {
	CUresult result;
	const char *name, *text;
} errors[] = {
	{CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
	{CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
	{CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
	{CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
	{CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
	{CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
	{CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
	{CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
	{CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
	{CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
	{CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
	{CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
	{CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
	{CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error: the simulated GPU does not answer"},
};

API CUresult cuGetErrorName(CUresult result, const char **name) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].result == result) {
			*name = errors[i].name;
			return CUDA_SUCCESS;
		}
	*name = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult result, const char **text) {
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].result == result) {
			*text = errors[i].text;
			return CUDA_SUCCESS;
		}
	*text = NULL;
	return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int cuda, uint64_t flags, int *status) {
	(void)cuda, (void)flags;
	Dl_info self;
	char versioned[256];
	*function = NULL;
	if (dladdr((void *)cuInit, &self)) {
		void *library = dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
		snprintf(versioned, sizeof versioned, "%s_v2", symbol);
		*function = dlsym(library, versioned);
		if (!*function)
			*function = dlsym(library, symbol);
		if (library)
			dlclose(library);
	}
	if (status)
		*status = *function ? 0 : 1;
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
