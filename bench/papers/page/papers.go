package page

func papers() []paper {
	return []paper{
		{"P1", "*Deadline information management for real-time GPU tasks in containers*. RTX 3090, i9-10920X; 10 containers of 5120² products.", p1()},
		{"P2", "*Real-time GPU task monitoring and node list management*.", p2()},
		{"P3", aboutP3, p3Figures()},
		{"P4", aboutP4, p4()},
		{"P5", "*GPU memory limits for containers by a CUDA interface*, a poster. K20m, 5 GiB.", p5()},
	}
}

const aboutP3 = `*Contention management for GPU-sharing containers by pause/unpause*. RTX 3090.

- Today's cards multiply faster than they copy. So each container repeats its product until kernels are nine tenths of a lone task, as on the
  paper's card: 7 times (19456²), 10 times (13312²), 30 times (8192²). Compare how times grow, not the seconds.
- *Its way* is time slicing without management in Figs 2 to 4 and Table 1. In Figs 7 to 9 it is the paper's algorithm: Laxity's own
  ` + "`--policy=p3`, with `--arbitrate=always`" + ` and Docker's pause. *Ours* is Laxity as it is shipped.
- A container launches all its kernels once its input is there: by default 0.5 to 5 s after its start (Table 1). What is launched runs on, so a pause
  that comes later orders nobody.`

const aboutP4 = "*Adaptive GPU sharing and scheduling in a container cluster*; we have its abstract. Its cluster and its checkpoints, which are TensorFlow's, are " +
	"not run. We run twelve tasks of products on 40 GiB, and four trainings of CNNs (PyTorch) on 54 GiB, of which two have deadlines. Ours ran with `--arbitrate=always`."
