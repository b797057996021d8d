package cudafile_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laxity/laxity/internal/cudaprobe/cudafile"
	"github.com/laxity/laxity/internal/cudaprobe/cudatest"
	"github.com/laxity/laxity/internal/needtest"
)

func TestKindsOf(t *testing.T) {
	want := map[string]cudafile.Kind{
		"cuInit":                       cudafile.Init,
		"cuCtxCreate":                  cudafile.Context,
		"cuCtxCreate_v2":               cudafile.Context,
		"cuCtxCreate_v17":              cudafile.Context,
		"cuDevicePrimaryCtxRetain":     cudafile.Context,
		"cuCtxDestroy_v2":              cudafile.ContextGone,
		"cuDevicePrimaryCtxRelease_v2": cudafile.ContextGone,
		"cuDevicePrimaryCtxReset_v2":   cudafile.ContextGone,
		"cuLaunchKernel":               cudafile.Launch,
		"cuLaunchKernel_ptsz":          cudafile.Launch,
		"cuLaunchKernelEx":             cudafile.Launch,
		"cuLaunchKernelEx_ptsz":        cudafile.Launch,
		"cuLaunchCooperativeKernel":    cudafile.Launch,
		"cuGraphLaunch":                cudafile.Launch,
		"cuGraphLaunch_v3_ptsz":        cudafile.Launch,
		"cuCtxSynchronize":             cudafile.Sync,
		"cuCtxSynchronize_v2":          cudafile.Sync,
		"cuStreamSynchronize_ptsz":     cudafile.Sync,
		"cuEventSynchronize":           cudafile.Sync,
		"cuMemcpyDtoH_v2":              cudafile.Sync,
		"cuMemcpyDtoH_v2_ptds":         cudafile.Sync,
		"cuMemcpyDtoHAsync_v2":         cudafile.AsyncCopy,
		"cuMemcpyDtoHAsync_v2_ptsz":    cudafile.AsyncCopy,

		"cuMemAlloc":                        cudafile.Alloc,
		"cuMemAlloc_v2":                     cudafile.Alloc,
		"cuMemAllocPitch_v2":                cudafile.AllocPitch,
		"cuMemAllocManaged":                 cudafile.AllocManaged,
		"cuMemAllocAsync":                   cudafile.AllocPool,
		"cuMemAllocAsync_ptsz":              cudafile.AllocPool,
		"cuMemAllocFromPoolAsync_ptsz":      cudafile.AllocPool,
		"cuMemCreate":                       cudafile.MemCreate,
		"cuArrayCreate_v2":                  cudafile.Array,
		"cuArray3DCreate_v2":                cudafile.Array3D,
		"cuMipmappedArrayCreate":            cudafile.Mipmap,
		"cuGraphAddMemAllocNode":            cudafile.AddMemNode,
		"cuGraphAddNode":                    cudafile.AddNodeOnFifth,
		"cuGraphAddNode_v2":                 cudafile.AddNodeOnSixth,
		"cuGraphInstantiate_v2":             cudafile.GraphMade,
		"cuGraphInstantiateWithFlags":       cudafile.GraphMade,
		"cuGraphInstantiateWithParams_ptsz": cudafile.GraphMade,
		"cuGraphUpload_ptsz":                cudafile.GraphRun,
		"cuGraphDestroy":                    cudafile.GraphGone,
		"cuMemFree_v2":                      cudafile.Free,
		"cuMemFreeAsync_ptsz":               cudafile.Free,
		"cuMemGetInfo_v2":                   cudafile.MemInfo,
		"cuDeviceTotalMem_v2":               cudafile.TotalMem,
		"cuCtxSetCurrent":                   cudafile.SetContext,
		"cuCtxPushCurrent_v2":               cudafile.PushContext,
		"cuCtxPopCurrent_v2":                cudafile.PopContext,
	}
	for name, kind := range want {
		if got := cudafile.KindsOf(name); len(got) == 0 || got[0] != kind {
			t.Errorf("%s: %v; want %v", name, got, kind)
		}
	}
	for name, kind := range map[string]cudafile.Kind{
		"cuDevicePrimaryCtxRetain": cudafile.ContextOnSecond,
		"cuCtxCreate":              cudafile.ContextOnThird,
		"cuCtxCreate_v2":           cudafile.ContextOnThird,
		"cuCtxCreate_v4":           cudafile.ContextOnFourth,
		"cuCtxCreate_v3":           cudafile.ContextOnFifth,
		"cuCtxCreate_v17":          cudafile.ContextElse,
	} {
		if got := cudafile.KindsOf(name); !slices.Equal(got, []cudafile.Kind{cudafile.Context, kind}) {
			t.Errorf("%s: %v; want %v", name, got, kind)
		}
	}
	for _, name := range []string{
		"", "cuInit2", "xcuInit", "cuLaunchHostFunc", "cuGraphLaunchers", "cuCtxCreateFlags", "cuMemcpyDtoD_v2",
		"cuMemcpyDtoHost", "cuStreamSynchronizeAll", "cuDevicePrimaryCtxGetState", "cuMemcpyHtoD_v2",
		"cuMemAllocHost_v2", "cuMemFreeHost", "cuMemGetInfo", "cuDeviceTotalMem", "cuArrayGetDescriptor_v2", "cuMemPoolCreate",
	} {
		if kinds := cudafile.KindsOf(name); len(kinds) > 0 {
			t.Errorf("%q is taken for %v", name, kinds)
		}
	}
}

func TestContainer(t *testing.T) {
	built := cudatest.Build(t)
	library, err := os.ReadFile(built.Library)
	if err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "libcuda.so.1") // of the host
	put(t, secret, library)

	tests := []struct {
		name string
		make func(root string)
		env  []string
		want []string
	}{
		{name: "none", make: func(string) {}},
		{
			name: "a usual place",
			make: func(root string) { put(t, root+"/usr/lib64/libcuda.so.1", library) },
			want: []string{"/usr/lib64/libcuda.so.1"},
		},
		{
			name: "one file by several names",
			make: func(root string) {
				put(t, root+"/usr/lib64/libcuda.so.580.1", library)
				link(t, "libcuda.so.580.1", root+"/usr/lib64/libcuda.so.1")
				link(t, "libcuda.so.1", root+"/usr/lib64/libcuda.so")
			},
			want: []string{"/usr/lib64/libcuda.so.1"},
		},
		{
			name: "an absolute link means the container's root",
			make: func(root string) {
				put(t, root+"/opt/driver/real.so", library)
				link(t, "/opt/driver/real.so", root+"/usr/lib64/libcuda.so.1")
			},
			want: []string{"/usr/lib64/libcuda.so.1"},
		},
		{
			name: "a link does not lead out",
			make: func(root string) {
				link(t, secret, root+"/usr/lib64/libcuda.so.1")
				link(t, "../../../../../../../../.."+secret, root+"/usr/lib64/libcuda.so")
			},
		},
		{
			name: "LD_LIBRARY_PATH",
			make: func(root string) { put(t, root+"/odd place/libcuda.so.1", library) },
			env:  []string{"LD_LIBRARY_PATH=/nowhere:/odd place"},
			want: []string{"/odd place/libcuda.so.1"},
		},
		{
			name: "the linker's cache",
			make: func(root string) {
				put(t, root+"/odd/libcuda.so.1", library)
				put(t, root+"/etc/ld.so.cache", cache("libcuda.so.1", "/odd/libcuda.so.1"))
			},
			want: []string{"/odd/libcuda.so.1"},
		},
		{
			name: "a pipe, a folder, and a loop",
			make: func(root string) {
				if err := unix.Mkfifo(root+"/usr/lib64/libcuda.so.1", 0o666); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(root+"/usr/local/lib/libcuda.so.1", 0o755); err != nil {
					t.Fatal(err)
				}
				link(t, "libcuda.so", root+"/usr/lib64/libcuda.so")
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			if err := os.MkdirAll(root+"/usr/lib64", 0o755); err != nil {
				t.Fatal(err)
			}
			tt.make(root)
			proc := fakeProc(t, root, tt.env)
			files, err := cudafile.Finder{Proc: proc}.Container(7)
			if err != nil {
				t.Fatal(err)
			}
			defer cudafile.CloseAll(files)
			if len(files) != len(tt.want) {
				t.Fatalf("found %v, want %v", paths(files), tt.want)
			}
			for i, f := range files {
				if f.Path != tt.want[i] {
					t.Errorf("found %s, want %s", f.Path, tt.want[i])
				}
				if _, err := f.Functions(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestMappedAndRemoved(t *testing.T) {
	built := cudatest.Build(t)
	p := built.Start(t)
	p.Open()
	if err := os.Remove(built.Library); err != nil {
		t.Fatal(err)
	}
	put(t, built.Library, []byte("another file"))
	files, err := cudafile.Finder{}.Mapped(p.PID)
	if err != nil {
		t.Fatal(err)
	}
	defer cudafile.CloseAll(files)
	if len(files) != 1 {
		needtest.Root.Skipf(t, "%d files: the kernel does not give map_files to us", len(files))
	}
	if _, err := files[0].Functions(); err != nil {
		t.Error("not the file that is mapped:", err)
	}
}

func TestFunctions(t *testing.T) {
	built := cudatest.Build(t)
	p := built.Start(t)
	p.Open()
	files, err := cudafile.Finder{}.Mapped(p.PID)
	if err != nil || len(files) != 1 {
		t.Fatal(paths(files), err)
	}
	defer cudafile.CloseAll(files)
	functions, err := files[0].Functions()
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[cudafile.Kind]int{
		cudafile.Init: 1, cudafile.Context: 3, cudafile.ContextGone: 2,
		cudafile.Launch: 4, cudafile.Sync: 5, cudafile.AsyncCopy: 1,
	} {
		if got := len(functions[kind]); got != want {
			t.Errorf("kind %d: %d functions, want %d", kind, got, want)
		}
	}
}

// Whatever a tenant puts there, it costs us no more than an error.
func TestFunctionsOfBadFiles(t *testing.T) {
	built := cudatest.Build(t)
	good, err := os.ReadFile(built.Library)
	if err != nil {
		t.Fatal(err)
	}
	patch := func(at int, value ...byte) []byte {
		bad := bytes.Clone(good)
		copy(bad[at:], value)
		return bad
	}
	program, err := os.ReadFile(built.Program)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"empty":            {},
		"text":             []byte("#!/bin/sh\n"),
		"header only":      good[:64],
		"cut":              good[:len(good)/2],
		"32 bit":           patch(4, 1),
		"many sections":    patch(60, 0xff, 0xff),
		"sections nowhere": patch(40, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f),
		"no sections":      patch(60, 0, 0),
		"no driver":        program,
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			put(t, root+"/usr/lib64/libcuda.so.1", content)
			files, err := cudafile.Finder{Proc: fakeProc(t, root, nil)}.Container(7)
			if err != nil || len(files) != 1 {
				t.Fatal(paths(files), err)
			}
			defer cudafile.CloseAll(files)
			if _, err := files[0].Functions(); !errors.Is(err, cudafile.ErrNotDriver) {
				t.Errorf("got %v, want ErrNotDriver", err)
			}
		})
	}
}

// The host's root is that of process 1. Our own is looked at as well, which this machine may
// have a driver in.
func TestHost(t *testing.T) {
	host := func(proc string) []string {
		files := cudafile.Finder{Proc: proc}.Host()
		defer cudafile.CloseAll(files)
		return paths(files)
	}
	root, proc := t.TempDir(), t.TempDir()
	put(t, root+"/usr/lib64/libcuda.so.1", []byte("a driver"))
	if err := os.Mkdir(proc+"/1", 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, root, proc+"/1/root")
	want := append([]string{"/usr/lib64/libcuda.so.1"}, host(t.TempDir())...)
	if got := host(proc); !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

// A tenant that holds a lease on its files keeps nobody waiting: they are left out, and found once
// it has given the lease back.
func TestLeasedFilesAreLeftOut(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"/usr/lib64/libcuda.so.1", "/usr/lib/libcuda.so.1", "/etc/ld.so.cache"} {
		put(t, root+path, []byte("x"))
	}
	proc := fakeProc(t, root, nil)
	put(t, proc+"/7/maps", []byte("7f00-7f10 r-xp 00000000 08:01 12 /usr/lib64/libcuda.so.1\n"))
	leased := map[cudafile.ID]bool{}
	finder := cudafile.Finder{Proc: proc, Leased: func(id cudafile.ID) { leased[id] = true }}

	giveBack := []func(){lease(t, root+"/usr/lib64/libcuda.so.1"), lease(t, root+"/etc/ld.so.cache")}
	began := time.Now()
	files, err := finder.Container(7)
	if err != nil || !slices.Equal(paths(files), []string{"/usr/lib/libcuda.so.1"}) || len(leased) != 1 {
		t.Errorf("found %v, %v; left out %v; want the file without a lease, and one left out", paths(files), err, leased)
	}
	cudafile.CloseAll(files)
	var is *cudafile.LeasedError
	if files, err := finder.Mapped(7); len(files) > 0 || !errors.As(err, &is) || !leased[is.ID] {
		t.Errorf("mapped: %v, %v", paths(files), err)
	}
	if took := time.Since(began); took > 30*time.Second { // the kernel breaks a lease after 45 s
		t.Errorf("it took %v", took)
	}

	for _, f := range giveBack {
		f()
	}
	files, err = finder.Container(7)
	defer cudafile.CloseAll(files)
	if err != nil || len(files) != 2 || !leased[files[0].ID] {
		t.Errorf("without leases: %v, %v", paths(files), err)
	}
}

// lease takes a lease on a file; what it returns gives it back.
func lease(t *testing.T, path string) (giveBack func()) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal("no lease: ", err)
	}
	return func() { _ = file.Close() }
}

// fakeProc makes a folder like /proc with one process, 7.
func fakeProc(t *testing.T, root string, env []string) string {
	t.Helper()
	proc := t.TempDir()
	put(t, proc+"/7/maps", []byte("55a0-55b0 r-xp 00000000 08:01 12 /bin/cat\nnonsense\n"))
	put(t, proc+"/7/mountinfo", []byte("1 0 8:1 / / rw - ext4 /dev/root rw\nnonsense\n"))
	put(t, proc+"/7/environ", bytes.Join(toBytes(env), []byte{0}))
	link(t, root, proc+"/7/root")
	return proc
}

func toBytes(env []string) [][]byte {
	var all [][]byte
	for _, v := range env {
		all = append(all, []byte(v))
	}
	return all
}

func cache(key, value string) []byte {
	var b bytes.Buffer
	b.WriteString("glibc-ld.so.cache1.1")
	order := binary.NativeEndian
	_ = binary.Write(&b, order, []uint32{1, uint32(len(key) + len(value) + 2), 0, 0, 0, 0, 0})
	strings := uint32(48 + 24)
	_ = binary.Write(&b, order, []uint32{0x303, strings, strings + uint32(len(key)) + 1, 0, 0, 0})
	b.WriteString(key + "\x00" + value + "\x00")
	return b.Bytes()
}

func paths(files []*cudafile.File) (all []string) {
	for _, f := range files {
		all = append(all, f.Path)
	}
	return all
}

func put(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o755); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}
