// CUDA runtime programs that check their own result, as people write them:
//
//   runtime matmul|graph|pools|exec [name=value ...]
//
// The result goes to the file that ZOO_OUT names: "right ..." or "wrong ...". Exit
// status: 0 right, 3 wrong, 4 a CUDA call failed, 5 out of memory.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <unistd.h>
#include <vector>

static void say(const char *text, long a = 0, long b = 0) {
	const char *path = getenv("ZOO_OUT");
	FILE *f = path ? fopen(path, "a") : stdout;
	if (!f)
		return;
	fprintf(f, "%s %ld %ld\n", text, a, b);
	if (f != stdout)
		fclose(f);
}

static void check(cudaError_t e, const char *what) {
	if (e == cudaSuccess)
		return;
	char text[256];
	snprintf(text, sizeof text, "wrong: %s: %s", what, cudaGetErrorString(e));
	say(text, (long)e);
	_exit(e == cudaErrorMemoryAllocation ? 5 : 4);
}
#define CU(call) check(call, #call)

static long number(int argc, char **argv, const char *name, long fallback) {
	size_t n = strlen(name);
	for (int i = 2; i < argc; i++)
		if (!strncmp(argv[i], name, n) && argv[i][n] == '=')
			return atol(argv[i] + n + 1);
	return fallback;
}

static int conclude(long wrong, long done) {
	say(wrong ? "wrong" : "right", wrong ? wrong : done, 0);
	return wrong ? 3 : 0;
}

__global__ void multiply(const float *a, const float *b, float *c, int n) {
	int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
	if (row >= n || column >= n)
		return;
	float sum = 0;
	for (int k = 0; k < n; k++)
		sum += a[(size_t)row * n + k] * b[(size_t)k * n + column];
	c[(size_t)row * n + column] = sum;
}

__global__ void step(unsigned *x, int n, int iters) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	unsigned v = x[i];
	for (int k = 0; k < iters; k++)
		v = v * 1664525u + 1013904223u;
	x[i] = v;
}

static unsigned host_steps(unsigned v, long steps) {
	unsigned a = 1664525u, c = 1013904223u, m = 1, p = 0;
	for (; steps; steps >>= 1) {
		if (steps & 1) {
			m *= a;
			p = p * a + c;
		}
		c *= a + 1;
		a *= a;
	}
	return v * m + p;
}

static float element(size_t i) { return (float)((int)(i % 7) - 3); } // small: sums are exact

static int matmul(int argc, char **argv) {
	int n = (int)number(argc, argv, "n", 8192);
	long kernels = number(argc, argv, "kernels", 3), wrong = 0;
	size_t bytes = (size_t)n * n * sizeof(float);
	CU(cudaFree(0)); // the context; then the host phase
	float *a = (float *)malloc(bytes), *b = (float *)malloc(bytes), *c = (float *)malloc(bytes), *da, *db, *dc;
	for (size_t i = 0; i < (size_t)n * n; i++)
		a[i] = element(i), b[i] = element(i / 3);
	CU(cudaMalloc(&da, bytes));
	CU(cudaMalloc(&db, bytes));
	CU(cudaMalloc(&dc, bytes));
	CU(cudaMemcpy(da, a, bytes, cudaMemcpyHostToDevice));
	CU(cudaMemcpy(db, b, bytes, cudaMemcpyHostToDevice));
	for (long k = 0; k < kernels; k++)
		multiply<<<dim3((n + 15) / 16, (n + 15) / 16), dim3(16, 16)>>>(da, db, dc, n);
	CU(cudaGetLastError());
	CU(cudaMemcpy(c, dc, bytes, cudaMemcpyDeviceToHost));
	for (long t = 0; t < 48; t++) {
		size_t row = (size_t)(t * 1009) % n, column = (size_t)(t * 7919) % n;
		double sum = 0;
		for (int k = 0; k < n; k++)
			sum += (double)a[row * n + k] * b[(size_t)k * n + column];
		wrong += c[row * n + column] != (float)sum;
	}
	CU(cudaFree(da));
	CU(cudaFree(db));
	CU(cudaFree(dc));
	return conclude(wrong, n);
}

static long compare(const unsigned *x, const std::vector<unsigned> &start, long steps) {
	std::vector<unsigned> got(start.size());
	long wrong = 0;
	CU(cudaMemcpy(got.data(), x, start.size() * 4, cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < start.size(); i++)
		wrong += got[i] != host_steps(start[i], steps);
	return wrong;
}

static std::vector<unsigned> beginning(size_t n, unsigned seed) {
	std::vector<unsigned> v(n);
	for (size_t i = 0; i < n; i++)
		v[i] = (unsigned)i * 2654435761u + seed;
	return v;
}

// graph replays a captured graph many times.
static int graph(int argc, char **argv) {
	int n = 1 << 16, iters = 2000;
	long replays = number(argc, argv, "requests", 300);
	std::vector<unsigned> start = beginning(n, (unsigned)number(argc, argv, "seed", 1));
	unsigned *x;
	cudaStream_t stream;
	cudaGraph_t made;
	cudaGraphExec_t exec;
	CU(cudaStreamCreate(&stream));
	CU(cudaMalloc(&x, n * 4));
	CU(cudaMemcpy(x, start.data(), n * 4, cudaMemcpyHostToDevice));
	CU(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	for (int k = 0; k < 10; k++)
		step<<<n / 256, 256, 0, stream>>>(x, n, iters);
	CU(cudaStreamEndCapture(stream, &made));
	CU(cudaGraphInstantiate(&exec, made, 0));
	for (long r = 0; r < replays; r++) {
		CU(cudaGraphLaunch(exec, stream));
		if (r % 20 == 19)
			CU(cudaStreamSynchronize(stream));
	}
	CU(cudaStreamSynchronize(stream));
	return conclude(compare(x, start, replays * 10 * iters), replays);
}

// pools allocates by stream order on several streams.
static int pools(int argc, char **argv) {
	int n = 1 << 18, iters = 100000;
	long rounds = number(argc, argv, "requests", 20), wrong = 0;
	std::vector<unsigned> start = beginning(n, (unsigned)number(argc, argv, "seed", 1));
	cudaStream_t stream[4];
	for (auto &s : stream)
		CU(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	for (long r = 0; r < rounds; r++) {
		unsigned *x[4];
		for (int s = 0; s < 4; s++) {
			CU(cudaMallocAsync(&x[s], n * 4, stream[s]));
			CU(cudaMemcpyAsync(x[s], start.data(), n * 4, cudaMemcpyHostToDevice, stream[s]));
			step<<<n / 256, 256, 0, stream[s]>>>(x[s], n, iters);
		}
		for (int s = 0; s < 4; s++) {
			CU(cudaStreamSynchronize(stream[s]));
			if (r % 5 == 4)
				wrong += compare(x[s], start, iters);
			CU(cudaFreeAsync(x[s], stream[s]));
		}
	}
	CU(cudaDeviceSynchronize());
	return conclude(wrong, rounds);
}

int main(int argc, char **argv) {
	const char *kind = argc > 1 ? argv[1] : "";
	if (!strcmp(kind, "graph"))
		return graph(argc, argv);
	if (!strcmp(kind, "pools"))
		return pools(argc, argv);
	int code = matmul(argc, argv);
	if (strcmp(kind, "exec") || code)
		return code;
	argv[1] = (char *)"graph"; // and now another program
	execv("/proc/self/exe", argv);
	return 4;
}
