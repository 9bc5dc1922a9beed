package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"spillway/internal/editdistance"
)

// rootCommand is the command whose --help shows the common flags only.
const rootCommand = "spillway"

// otherNames are flags by the names that other programs, or other commands, have for them.
var otherNames = map[string]string{
	"memory": "memory-budget", "memory-limit": "memory-budget", "port": "listen",
	"certificate-authority": "ca-file",
}

// HelpOf returns the command that prints all flags of a command, such as "spillway top --help".
// Those of "spillway config print" are the root command's.
func HelpOf(command string) string {
	if command == rootCommand || command == rootCommand+" config print" {
		return rootCommand + " --help=all"
	}
	return command + " --help"
}

// ExplainFlagError says in our words what pflag found wrong with the command line of a command.
func ExplainFlagError(command string, flags *pflag.FlagSet, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	help := HelpOf(command)
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "":
		name := unknown.GetSpecifiedName()
		near := nearest(name, flagNames(flags))
		if other := otherNames[name]; near == "" && flags.Lookup(other) != nil {
			near = other
		}
		if near != "" {
			return fmt.Errorf("--%s: no such flag; did you mean --%s?", name, near)
		}
		return fmt.Errorf("--%s: no such flag; %s lists them", name, help)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "v":
		return errors.New("-v: no such flag; spillway version prints the version, and --log-level=debug logs more")
	case errors.As(err, &unknown):
		return fmt.Errorf("-%s: no such flag; %s lists them", unknown.GetSpecifiedShortnames(), help)
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s=%s: %s", invalid.GetFlag().Name, invalid.GetValue(), expected(invalid))
	case errors.As(err, &missing):
		return fmt.Errorf("--%s: needs a value", missing.GetSpecifiedName())
	}
	return fmt.Errorf("%w; %s lists the flags", err, help)
}

// expected describes good values of a flag. Our own types of flags do that in their errors.
func expected(err *pflag.InvalidValueError) string {
	if text := expectedOf(err.GetFlag().Value.Type()); text != "" {
		return text
	}
	return err.Unwrap().Error()
}

// expectedOf describes good values of the type of a flag; nothing if the type is ours.
func expectedOf(kind string) string {
	switch kind {
	case "bool":
		return "must be true or false"
	case "int", "int32":
		return "must be a whole number"
	case "float64":
		return "must be a number"
	case "duration":
		return "must be a number with a unit, such as 30s or 2m"
	}
	return ""
}

// flagNames returns the names of all flags, sorted.
func flagNames(flags *pflag.FlagSet) []string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return names
}

// nearest returns the name that given was most likely meant to be, or "" when none is near.
func nearest(given string, names []string) string {
	best, bestDistance := "", len(given)/3+1
	for _, name := range names {
		d := editdistance.Of(plainName(given), plainName(name))
		if sameWords(given, name) {
			d = 0
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

// plainName drops what differs between spellings of one name: historyBytes, history_bytes,
// history-bytes.
func plainName(name string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name))
}

// sameWords reports whether two names are made of the same words: tls-listen, listen-tls.
func sameWords(a, b string) bool {
	words := func(name string) []string {
		return slices.Sorted(slices.Values(strings.Split(strings.ReplaceAll(name, "_", "-"), "-")))
	}
	return slices.Equal(words(a), words(b))
}
