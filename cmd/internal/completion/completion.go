// Package completion has the scripts that let a shell complete a program's commands and flags.
//
// It imports the standard library only.
package completion

import "strings"

// Shells are those with a script.
var Shells = []string{"bash", "zsh", "fish"}

// Script returns the script of a shell for a program, or "" for a shell without one. It asks the
// program itself with the words so far (--completion-bash, which kingpin answers).
func Script(shell, program string) string {
	name := strings.ReplaceAll(program, "-", "_") // of functions
	return strings.NewReplacer("PROGRAM", program, "NAME", name).Replace(scripts[shell])
}

// File is where package/completions keeps the script; its last part is the name that the shell
// looks for.
func File(shell, program string) string {
	switch shell {
	case "zsh":
		return "zsh/_" + program
	case "fish":
		return "fish/" + program + ".fish"
	}
	return shell + "/" + program
}

var scripts = map[string]string{
	"bash": `_NAME() {
    local cur="${COMP_WORDS[COMP_CWORD]}" line
    COMPREPLY=()
    # Not compgen -W, which would run $(commands) in the candidates.
    while IFS= read -r line || [[ -n $line ]]; do
        [[ $line == "$cur"* ]] && COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" --completion-bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o default -F _NAME PROGRAM
`,
	"zsh": `#compdef PROGRAM
_NAME() {
    local -a matches
    matches=(${(f)"$("${words[1]}" --completion-bash "${(@)words[2,$CURRENT]}" 2>/dev/null)"})
    compadd -a matches
    if [[ $compstate[nmatches] -eq 0 && $words[$CURRENT] != -* ]]; then
        _files
    fi
}
if [[ "$funcstack[1]" == "_PROGRAM" ]]; then
    _NAME "$@"
else
    compdef _NAME PROGRAM
fi
`,
	"fish": `function __NAME_complete
    set -l words (commandline -opc) (commandline -ct)
    $words[1] --completion-bash $words[2..-1] 2>/dev/null
end
complete -c PROGRAM -a '(__NAME_complete)'
`,
}
