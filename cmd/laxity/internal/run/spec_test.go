package run_test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/laxity/laxity/cmd/laxity/internal/run"
	"github.com/laxity/laxity/internal/needtest"
)

func TestParse(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		want func(s run.Spec) bool
	}{
		"an image alone": {"img", func(s run.Spec) bool { return s.Image == "img" && s.Node == run.Auto && len(s.Flags) == 0 }},
		"what follows the image": {"img --deadline 9s -d", func(s run.Spec) bool {
			return len(s.Labels) == 0 && !s.Detach && strings.Join(s.Args, " ") == "--deadline 9s -d"
		}},
		"deadline and memory": {"--deadline 9s --gpu-memory=4GiB img", func(s run.Spec) bool {
			return s.Labels["laxity.deadline"] == "9s" && s.Labels["laxity.gpu-memory"] == "4GiB" && len(s.Flags) == 0
		}},
		"the same as labels": {"-l laxity.deadline=9s --label=laxity.gpu-memory=4g -lx=y img", func(s run.Spec) bool {
			return s.Labels["laxity.deadline"] == "9s" && s.Labels["laxity.gpu-memory"] == "4g" && strings.Join(s.Flags, " ") == "--label x=y"
		}},
		"docker's flags": {"-it --rm -e A=b -p 80:80 --name web -v /a:/b:ro img sh -c x", func(s run.Spec) bool {
			return s.Image == "img" && strings.Join(s.Flags, " ") == "-it --rm -e A=b -p 80:80 --name web -v /a:/b:ro" && len(s.Args) == 3
		}},
		"flags in one word":      {"-itdp 80:80 -eA=b -w=/x img", func(s run.Spec) bool { return s.Detach && strings.Join(s.Flags, " ") == "-itd -p 80:80 -e A=b -w /x" }},
		"switches with a value":  {"--detach=false --init=true img", func(s run.Spec) bool { return !s.Detach && strings.Join(s.Flags, " ") == "--detach=false --init=true" }},
		"an image behind dashes": {"--rm -- img -x", func(s run.Spec) bool { return s.Image == "img" && strings.Join(s.Args, " ") == "-x" }},
		"a value with a dash":    {"--env -x img", func(s run.Spec) bool { return s.Image == "img" && strings.Join(s.Flags, " ") == "--env -x" }},
		"a node": {"--node gpu-2 --estimate 3s --actuator.url http://a:1 --token.file /t img", func(s run.Spec) bool {
			return s.Node == "gpu-2" && s.Estimate == "3s" && s.Actuator == "http://a:1" && s.TokenFile == "/t" && len(s.Flags) == 0
		}},
		"GPUs where docker is":        {"--node=local --gpus all img", func(s run.Spec) bool { return s.Node == run.Local && strings.Join(s.Flags, " ") == "--gpus all" }},
		"other devices and variables": {"--privileged=false --device /dev/fuse -e NVIDIA=1 -v /a:/b img", func(s run.Spec) bool { return s.ByHand == "" && s.Image == "img" }},
		"GPUs by hand":                {"--gpu-request none --gpus all img", func(s run.Spec) bool { return s.NoGPURequest && s.ByHand == "--gpus" }},
		"a cid file of one's own":     {"--cidfile /x img", func(s run.Spec) bool { return s.CIDFile == "/x" && len(s.Flags) == 0 }},
		"required":                    {"--require --deadline 9s img", func(s run.Spec) bool { return s.Require == run.RequirePossible && s.Image == "img" }},
		"required to be known":        {"--require=known -llaxity.share=30% img", func(s run.Spec) bool { return s.Require == run.RequireKnown && s.Image == "img" }},
		"help":                        {"--deadline 9s --help", func(s run.Spec) bool { return s.Help }},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := run.Parse("run", strings.Fields(tc.args))
			if err != nil || !tc.want(s) {
				t.Errorf("%s: %+v, %v", tc.args, s, err)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for args, says := range map[string]string{
		"":                                    "no image",
		"--deadline 9s":                       "no image",
		"--deadline":                          "needs a value",
		"-e":                                  "-e needs a value",
		"--deadline 0 img":                    "--deadline: \"0\" is not a deadline: it must be longer than 0",
		"--deadline=-9s img":                  "longer than 0",
		"--deadline soon img":                 "write a duration such as 9s",
		"--gpu-memory much img":               "--gpu-memory: \"much\" is not an amount of memory",
		"--gpu-memory 0 img":                  "write, for example, 4GiB",
		"--label laxity.dedline=9s img":       "no such label",
		"--label laxity.pause=maybe img":      "allow or never",
		"--deadline 9s -llaxity.deadline=8 i": "write it once",
		"--estimate 0 img":                    "--estimate",
		"--gpus all img":                      "leave --gpus out",
		"--privileged img":                    "leave --privileged out",
		"-e NVIDIA_VISIBLE_DEVICES=all img":   "leave --env NVIDIA_VISIBLE_DEVICES out",
		"--env=NVIDIA_VISIBLE_DEVICES img":    "leave --env NVIDIA_VISIBLE_DEVICES out",
		"--device=nvidia.com/gpu=all img":     "leave --device nvidia.com/gpu=all out",
		"--device /dev/nvidia0:/dev/x img":    "--gpu-request=none",
		"-v/dev/null:/var/run/nvidia-container-devices/all i": "--node=local",
		"--require --deadline 9s --estimate 0 img":            "--estimate",
		"--require img":                   "there is nothing to require",
		"--require=yes --deadline 9s img": "write --require, or --require=known",
		"--node= img":                     "laxity nodes lists them",
		"--gpu-request all img":           "auto or none",
	} {
		if _, err := run.Parse("run", strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: error = %v, want one that says %q", args, err, says)
		}
	}
}

// Which flags take a value is known by heart; the docker that is installed says
// whether rightly.
func TestDockerHasTheFlagsThatAreKnown(t *testing.T) {
	if _, err := exec.LookPath("docker"); err != nil {
		needtest.Docker.Skip(t, "no docker command to compare with")
	}
	flag := regexp.MustCompile(`^\s+(?:-(\w), |    )--([\w-]+)(?: (\S+))?(?:\s{2,}|$)`)
	for _, command := range []string{"run", "create"} {
		out, err := exec.CommandContext(t.Context(), "docker", command, "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for line := range strings.Lines(string(out)) {
			m := flag.FindStringSubmatch(strings.TrimRight(line, "\n"))
			if m == nil || m[2] == "help" {
				continue
			}
			seen++
			forms := []string{"--" + m[2]}
			if m[1] != "" {
				forms = append(forms, "-"+m[1])
			}
			for _, form := range forms {
				args := []string{form, "true", "img"}
				if m[2] == "gpus" || m[2] == "label" || m[2] == "privileged" {
					args = append([]string{"--node=local"}, args...)
				}
				s, err := run.Parse(command, args)
				takes := err == nil && s.Image == "img"
				if takes != (m[3] != "") {
					t.Errorf("docker %s %s (%s): takes a value = %v, and here %v", command, form, m[3], m[3] != "", takes)
				}
			}
		}
		if seen < 50 {
			t.Errorf("docker %s --help: only %d flags were read", command, seen)
		}
	}
}
