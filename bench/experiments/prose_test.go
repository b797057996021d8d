package experiments

import (
	"os"
	"strings"
	"testing"
)

// prose are the figures that pages state in sentences, and in tables of their own: each phrase stands in its page, and
// each of its claims in the phrase.
var prose = []struct {
	page, phrase string
	claims       []claim
}{
	{"bench/README.md", "twelve small ones in 2.703 s, with Laxity in 3.134 s (arbitrate); 20 of 8192² in 126.9 s, with Laxity in 128.6 s (contention-8192)", []claim{
		{"2.703", "arbitrate|small|12|mps|MAKESPAN s", 0}, {"3.134", "arbitrate|small|12|laxity|MAKESPAN s", 0}, {"126.9", "contention-8192|20|mps|MAKESPAN s", 0}, {"128.6", "contention-8192|20|laxity|MAKESPAN s", 0}}},
	{"bench/README.md", "1.162 ms by MPS with priorities, with Laxity 1.438 ms (serve)", []claim{
		{"1.162", "serve|server|1|mps-priority|P50 ms", 0}, {"1.438", "serve|server|1|laxity|P50 ms", 0}}},
	{"bench/README.md", "a trainer makes 0.800 steps a second, by default 8.994 (serve-scenes). Beside a server the slowest of four trainers makes 0.600, by default 2.800", []claim{
		{"0.800", "serve-scenes|decode|1|laxity|STEPS/s", 0}, {"8.994", "serve-scenes|decode|1|default|STEPS/s", 0}, {"0.600", "serve|server|4|laxity|FEWEST/s", 0}, {"2.800", "serve|server|4|default|FEWEST/s", 0}}},
	{"bench/README.md", "end twelve tasks on 40 GiB in 23.6 s, Laxity's limits in 25.2 s (oversubscribe)", []claim{
		{"23.6", "oversubscribe|equal|static|MAKESPAN s", 0}, {"25.2", "oversubscribe|equal|laxity|MAKESPAN s", 0}}},
	{"bench/README.md", "takes 24.8 % of a core beside 100 containers, the papers' monitor 4.275 % (cost)", []claim{
		{"24.8", "cost|100|laxity|SCRAPED 10/s", 0}, {"4.275", "cost|100|nvidia-smi + docker top|CPU % of a core", 0}}},
	{"bench/README.md", "beside 1,000 processes it takes 5.863 %, the monitor 2.926 % (growth)", []claim{
		{"5.863", "growth|100|laxity|CPU % of a core", 0}, {"2.926", "growth|100|nvidia-smi + docker top|CPU % of a core", 0}}},
	{"bench/README.md", "takes 0.780 s a minute, ours 2.338 s (peers)", []claim{
		{"0.780", "peers|100|nvidia-gpu-exporter|1|CPU s A MINUTE", 0}, {"2.338", "peers|100|laxity|1|CPU s A MINUTE", 0}}},
	{"bench/README.md", "answers in 187.4 ms; to ask every node, as the paper does, takes 46.6 ms (scale)", []claim{
		{"187.4", "scale|1000|Prometheus|CROWDED ms", 0}, {"46.6", "scale|1000|every node asked (P2)|DECISION ms", 0}}},
	{"bench/README.md", "At a load of 0.3 the default ranking meets 99.9 % of the deadlines, the paper's 100.0 % (quality)", []claim{
		{"99.9 %", "quality|0.3|predictive", 0}, {"100.0 %", "quality|0.3|paper", 0}}},
	{"bench/README.md", "half of a GPU 74.580 % of all requests are in time, by default 97.686 % (admission)", []claim{
		{"74.580", "admission|frames|0.5|laxity, --require=known|OF ALL OFFERED, IN TIME", 0}, {"97.686", "admission|frames|0.5|default|OF ALL OFFERED, IN TIME", 0}}},
	{"bench/README.md", "takes 1.0855 times as long (overhead). An allocation near its limit takes 440.64 µs, without a guard 43.89 µs (guard). To swap 40 GB out and back takes 27.5 s, by the driver's API alone 25.2 s (swap, one round)", []claim{
		{"1.0855", "overhead|paced|busy|RATIO", 0}, {"440.64", "guard|asked, granted|ALLOCATION µs, MEDIAN", 0}, {"43.89", "guard|without|ALLOCATION µs, MEDIAN", 0}, {"27.5", "swap|40|laxity|CYCLE s", 0}, {"25.2", "swap|40|driver|CYCLE s", 0}}},
	{"bench/README.md", "are off by up to 113.4 % (account)", []claim{
		{"113.4", "account#account_unseen_energy_error", 100}}},
	{"bench/README.md", "grew by 23.4 MiB an hour within two hours under load, from 220.4 to 239.9 MiB", []claim{
		{"23.4", "long#long_up_rss_mib_per_hour", 0}, {"220.4", "long|laxity up|rss_mib|FIRST", 0}, {"239.9", "long|laxity up|rss_mib|LAST", 0}}},
	{"bench/README.md", "and 3.695 % at 6615a68; it had 1,640 series then, and 4,314 now (cost). With 1,000 processes it took 4.53 % at d1a534b2, and 5.863 % at ed3d6a68", []claim{
		{"3.695", "cost|100|laxity|CPU % of a core", 0}, {"5.863", "growth|100|laxity|CPU % of a core", 0}}},
	{"bench/README.md", "and 8.827 ms at 88834286 (scale)", []claim{
		{"8.827", "scale|10|Prometheus|DECISION ms", 0}}},
	{"docs/holding.md", "On an H200 (driver 580.159.04, 1,000 cycles), from the decision to the kernel's last beat: 0.74 ms (median), 0.97 ms (p99); on again 0.68, 0.91 ms", []claim{
		{"0.74", "channels#kernel_off_median_ms", 0}, {"0.97", "channels#kernel_off_p99_ms", 0}, {"0.68", "channels#kernel_on_median_ms", 0}, {"0.91", "channels#kernel_on_p99_ms", 0}}},
	{"docs/holding.md", "takes 0.8 ms in the median, and 43 ms (p99)", []claim{
		{"0.8", "channels#startups_kernel_off_median_ms", 0}, {"43", "channels#startups_kernel_off_p99_ms", 0}}},
	{"docs/holding.md", "are found in 10 ms (at most 12)", []claim{{"10", "channels#find_new_median_ms", 0}, {"12", "channels#find_new_max_ms", 0}}},
	{"docs/holding.md", "waited for their turn, 1.3 s (2.1 at most)", []claim{
		{"1.3", "channels#ends_destroy_memory_free_median_ms", 1e-3}, {"2.1", "channels#ends_memory_free_max_ms", 1e-3}}},
	{"docs/holding.md", "four trainers: p99 3.0 ms, 3.1 ms alone, 10.9 ms without Laxity", []claim{
		{"3.0", "serve|server|4|laxity|P99", 0}, {"3.1", "serve|server|0|default|P99", 0}, {"10.9", "serve|server|4|default|P99", 0}}},
	{"docs/which-gpu-sharing.md", "| **2.7 s; 2.3 s** | 3.1 s; 2.6 s | 3.6 s; 3.3 s |", []claim{
		{"2.7", "arbitrate|small|12|mps|MAKESPAN s", 0}, {"2.3", "arbitrate|small|12|mps|MEAN TURNAROUND s", 0}, {"3.1", "arbitrate|small|12|laxity|MAKESPAN s", 0},
		{"2.6", "arbitrate|small|12|laxity|MEAN TURNAROUND s", 0}, {"3.6", "arbitrate|small|12|default|MAKESPAN s", 0}, {"3.3", "arbitrate|small|12|default|MEAN TURNAROUND s", 0}}},
	{"docs/which-gpu-sharing.md", "| **29.3 s**; 23.4 s | 29.6 s; **17.8 s** | 33.8 s; 33.4 s |", []claim{
		{"29.3", "arbitrate|large|8|mps|MAKESPAN s", 0}, {"23.4", "arbitrate|large|8|mps|MEAN TURNAROUND s", 0}, {"29.6", "arbitrate|large|8|laxity|MAKESPAN s", 0},
		{"17.8", "arbitrate|large|8|laxity|MEAN TURNAROUND s", 0}, {"33.8", "arbitrate|large|8|default|MAKESPAN s", 0}, {"33.4", "arbitrate|large|8|default|MEAN TURNAROUND s", 0}}},
	{"docs/which-gpu-sharing.md", "| 2 of 8 | 7 of 8 by `edf`, **8 of 8** by `llf` | 0 of 8 |", []claim{
		{"2 of 8", "arbitrate|deadlines|8|mps|HITS", 0}, {"7 of 8", "arbitrate|deadlines|8|edf|HITS", 0}, {"8 of 8", "arbitrate|deadlines|8|llf|HITS", 0}, {"0 of 8", "arbitrate|deadlines|8|default|HITS", 0}}},
	{"docs/which-gpu-sharing.md", "| 82.8 % | **88.9 %** by `edf`, 83.3 % by `llf` | 71.1 % |", []claim{
		{"82.8", "mixed|mixed|60|mps|HITS", 0}, {"88.9", "mixed|mixed|60|edf|HITS", 0}, {"83.3", "mixed|mixed|60|llf|HITS", 0}, {"71.1", "mixed|mixed|60|default|HITS", 0}}},
	{"docs/which-gpu-sharing.md", "alone, the p99 was 3.1 ms by default", []claim{{"3.1", "serve|server|0|default|P99", 0}}},
	{"docs/which-gpu-sharing.md", "| beside one trainer | 13.6 ms; **13.0/s** | 3.2 ms; 11.6/s | 3.6 ms; 12.6/s | 4.3 ms; 12.8/s |", []claim{
		{"13.6", "serve|server|1|mps|P99", 0}, {"13.0", "serve|server|1|mps|STEPS/s", 0}, {"3.2", "serve|server|1|mps-priority|P99", 0}, {"11.6", "serve|server|1|mps-priority|STEPS/s", 0},
		{"3.6", "serve|server|1|laxity|P99", 0}, {"12.6", "serve|server|1|laxity|STEPS/s", 0}, {"4.3", "serve|server|1|default|P99", 0}, {"12.8", "serve|server|1|default|STEPS/s", 0}}},
	{"docs/which-gpu-sharing.md", "| beside four | 36 s; **12.8/s** | 5.1 ms; 12.0/s | **3.0 ms**; 12.4/s | 10.9 ms; 11.4/s |", []claim{
		{"36", "serve|server|4|mps|P99", 1e-3}, {"12.8", "serve|server|4|mps|STEPS/s", 0}, {"5.1", "serve|server|4|mps-priority|P99", 0}, {"12.0", "serve|server|4|mps-priority|STEPS/s", 0},
		{"3.0", "serve|server|4|laxity|P99", 0}, {"12.4", "serve|server|4|laxity|STEPS/s", 0}, {"10.9", "serve|server|4|default|P99", 0}, {"11.4", "serve|server|4|default|STEPS/s", 0}}},
	{"docs/which-gpu-sharing.md", "the slowest made 0.6 steps a second, and in one run none; with the others it made 2.8", []claim{
		{"0.6", "serve|server|4|laxity|FEWEST/s", 0}, {"2.8", "serve|server|4|default|FEWEST/s", 0}}},
	{"docs/which-gpu-sharing.md", "refused at 40 MiB over the limit at most", []claim{{"40", "limits#limits_most_over", 0}}},
	{"docs/limits.md", "(3.2 and 3.1 ms, five runs)", []claim{{"3.2", "serve|server|0|laxity|P99", 0}, {"3.1", "serve|server|0|default|P99", 0}}},
	{"docs/limits.md", "its median is 1.2 ms in place of 1.4", []claim{
		{"1.2", "serve|server|1|mps-priority|P50 ms", 0}, {"1.4", "serve|server|1|laxity|P50 ms", 0}}},
	{"docs/limits.md", "made 0.6 steps a second within 5 s, by default 2.8", []claim{
		{"0.6", "serve|server|4|laxity|FEWEST/s", 0}, {"2.8", "serve|server|4|default|FEWEST/s", 0}}},
	{"docs/limits.md", "by up to 113 %, their GPU-seconds by 3.2 %", []claim{
		{"113", "account#account_unseen_energy_error", 100}, {"3.2", "account#account_unseen_gpu_seconds_error", 100}}},
	{"docs/limits.md", "that is some 410 MB of disk", []claim{{"410", "long|samples|disk_kib|LAST", 1024e-6}}},
	{"docs/limits.md", "was refused at 40 MiB over it at most", []claim{{"40", "limits#limits_most_over", 0}}},
	{"docs/limits.md", "took 5 ms longer, of 70 ms, on an H100", []claim{
		{"5", "limits#guard_step_no_caching_more_ms", 0}, {"70", "limits|training step, PYTORCH_NO_CUDA_MEMORY_CACHING=1|without|REFUSED", 0}}},
	{"actuator/plan/ladder/README.md", "p99 1.07 ms, 1.06 × alone; by default 3.40; the trainer made 0.8 steps a second, 9.0 by default", []claim{
		{"1.07", "serve-scenes|decode|1|laxity|P99", 0}, {"1.06", "serve-scenes#decode_p99_vs_alone", 0}, {"3.40", "serve-scenes|decode|1|default|P99", 0},
		{"0.8", "serve-scenes|decode|1|laxity|STEPS/s", 0}, {"9.0", "serve-scenes|decode|1|default|STEPS/s", 0}}},
}

// What pages say of measurements in sentences is what the stored results say.
func TestFiguresInSentences(t *testing.T) {
	all, err := Stored(os.DirFS("../results"))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range prose {
		text, err := os.ReadFile("../../" + p.page)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), p.phrase) {
			t.Errorf("%s does not say %q", p.page, p.phrase)
		}
		for _, c := range p.claims {
			if !strings.Contains(p.phrase, c.text) {
				t.Errorf("%q is not in %q", c.text, p.phrase)
			}
			switch value, err := c.value(all); {
			case err != nil:
				t.Errorf("%s, %q: %v", p.page, p.phrase, err)
			default:
				if err := c.agrees(value); err != nil {
					t.Errorf("%s, %q: %v", p.page, p.phrase, err)
				}
			}
		}
	}
}
