package config

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const envPrefix = "SPILLWAY_"

// origin is where a value came from, as a prefix of messages about it: "--listen=",
// "SPILLWAY_LISTEN=", "conf.yaml:3: listen: ".
type origin string

func (from origin) refuse(value, remedy string) error {
	return fmt.Errorf("%s%s: %s", from, value, remedy)
}

// notConfigurable are flags that ask for something else than a run.
var notConfigurable = []string{"help", "version"}

// Complete sets the flags that the command line left alone: from the environment, else from the
// configuration file. It must be called once, after the command line was parsed.
func (o *Settings) Complete(flags *pflag.FlagSet, environ []string) error {
	o.flags = flags
	onCommandLine := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { onCommandLine[f.Name] = true })
	if err := o.readEnvironment(flags, environ, onCommandLine); err != nil {
		return err
	}
	if o.ConfigFile == "" {
		return nil
	}
	entries, err := readConfigFile(o.ConfigFile)
	var unreadable *fs.PathError
	if errors.As(err, &unreadable) {
		return o.Refuse("config", o.ConfigFile, "cannot be read: "+Cause(err))
	}
	if err != nil {
		return err
	}
	return o.readEntries(flags, entries)
}

// readEnvironment sets flags from SPILLWAY_* variables. A variable that is set but empty counts: it
// is how a listener is switched off.
func (o *Settings) readEnvironment(flags *pflag.FlagSet, environ []string, skip map[string]bool) error {
	environ = slices.Sorted(slices.Values(environ)) // so that of several mistakes the same one is always named
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || isServiceVariable(name, value) {
			continue
		}
		f := flagOfVariable(flags, name)
		if f == nil {
			return unknownVariable(flags, name)
		}
		if skip[f.Name] {
			continue
		}
		if err := o.set(flags, f, origin(name+"="), value); err != nil {
			return err
		}
	}
	return nil
}

// readEntries sets the flags that neither command line nor environment has set.
func (o *Settings) readEntries(flags *pflag.FlagSet, entries []configEntry) error {
	for _, e := range entries {
		f := flags.Lookup(e.key)
		if f == nil || slices.Contains(notConfigurable, e.key) {
			return unknownKey(flags, e)
		}
		if e.key == "config" {
			return fmt.Errorf("%s: config: a configuration file cannot name another", e.place)
		}
		if f.Changed {
			continue
		}
		if err := o.setEntry(flags, f, e); err != nil {
			return err
		}
	}
	return nil
}

func (o *Settings) setEntry(flags *pflag.FlagSet, f *pflag.Flag, e configEntry) error {
	from := origin(e.place + ": " + e.key + ": ")
	if !e.isList {
		return o.set(flags, f, from, e.value)
	}
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return fmt.Errorf("%s: %s: takes one value, not a list", e.place, e.key)
	}
	o.origins[f.Name] = from
	f.Changed = true
	return list.Replace(e.list)
}

func (o *Settings) set(flags *pflag.FlagSet, f *pflag.Flag, from origin, value string) error {
	o.origins[f.Name] = from
	err := flags.Set(f.Name, value)
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return from.refuse(value, expected(invalid))
	}
	return err
}

// originOf returns where the value of a flag came from; a default reads as if it were given as a
// flag.
func (o *Settings) originOf(flag string) origin {
	if from, ok := o.origins[flag]; ok {
		return from
	}
	return origin("--" + flag + "=")
}

// variableOf is the environment variable of a flag: SPILLWAY_HISTORY_BYTES for history-bytes.
func variableOf(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func flagOfVariable(flags *pflag.FlagSet, variable string) *pflag.Flag {
	var found *pflag.Flag
	flags.VisitAll(func(f *pflag.Flag) {
		if variableOf(f.Name) == variable && !slices.Contains(notConfigurable, f.Name) {
			found = f
		}
	})
	return found
}

// isServiceVariable reports whether the kubelet made this variable for a Service whose name begins
// with "spillway": every pod in its namespace is given those, spillway's own among them.
func isServiceVariable(name, value string) bool {
	if serviceVariable.MatchString(name) {
		return true
	}
	return strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

var serviceVariable = regexp.MustCompile(
	`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

func unknownVariable(flags *pflag.FlagSet, variable string) error {
	given := strings.ToLower(strings.TrimPrefix(variable, envPrefix))
	if near := nearest(given, settableNames(flags)); near != "" {
		return fmt.Errorf("%s: no such setting; did you mean %s?", variable, variableOf(near))
	}
	return fmt.Errorf("%s: no such setting; unset it, or see spillway --help for the names of all", variable)
}

func unknownKey(flags *pflag.FlagSet, e configEntry) error {
	if near := nearest(e.key, settableNames(flags)); near != "" {
		return fmt.Errorf("%s: %s: no such setting; did you mean %s?", e.place, e.key, near)
	}
	return fmt.Errorf("%s: %s: no such setting; keys are the names of the flags in spillway --help", e.place, e.key)
}

func settableNames(flags *pflag.FlagSet) []string {
	return slices.DeleteFunc(flagNames(flags), func(name string) bool { return slices.Contains(notConfigurable, name) })
}
