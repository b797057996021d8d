package priority

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// oomScore is where a process reads and writes its oom_score_adj.
const oomScore = "/proc/self/oom_score_adj"

// Outlive asks the kernel to kill other processes before this one and its future children when
// memory runs short. score is the new oom_score_adj, −1000 (never) to 1000, unless the present one
// is lower. Lowering it takes CAP_SYS_RESOURCE.
func Outlive(score int) error { return outlive(oomScore, score) }

func outlive(path string, score int) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	is, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if is <= score {
		return nil
	}
	return os.WriteFile(path, []byte(strconv.Itoa(score)), 0)
}
