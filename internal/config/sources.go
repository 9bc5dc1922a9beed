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

// Complete sets the flags that the command line left alone: from the environment, else from the
// configuration file. It must be called once, after the command line was parsed.
func (o *Settings) Complete(environ []string) error {
	if err := o.readEnvironment(environ); err != nil {
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
	return o.readEntries(entries)
}

// readEnvironment sets flags from SPILLWAY_* variables. A variable that is set but empty counts: it
// is how a listener is switched off.
func (o *Settings) readEnvironment(environ []string) error {
	environ = slices.Sorted(slices.Values(environ)) // of several mistakes, always the same one is named
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || isServiceVariable(name, value) {
			continue
		}
		at := slices.IndexFunc(o.rows, func(s *setting) bool { return variableOf(s.name) == name })
		if at < 0 {
			given := strings.ToLower(strings.TrimPrefix(name, envPrefix))
			return fmt.Errorf("%s: %w", name,
				o.unknown(given, variableOf, "unset it; spillway --help=all lists all names"))
		}
		if f := o.flags.Lookup(o.rows[at].name); !f.Changed {
			if err := o.set(f, origin(name+"="), value); err != nil {
				return err
			}
		}
	}
	return nil
}

// readEntries sets the flags that neither command line nor environment has set.
func (o *Settings) readEntries(entries []configEntry) error {
	for _, e := range entries {
		f := o.flags.Lookup(e.key)
		if f == nil {
			return fmt.Errorf("%s: %s: %w", e.place, e.key, o.unknown(e.key, func(key string) string { return key },
				"keys are the names of flags, which spillway --help=all lists"))
		}
		if e.key == "config" {
			return fmt.Errorf("%s: config: a configuration file cannot name another", e.place)
		}
		if f.Changed {
			continue
		}
		if err := o.setEntry(f, e); err != nil {
			return err
		}
	}
	return nil
}

func (o *Settings) setEntry(f *pflag.Flag, e configEntry) error {
	from := origin(e.place + ": " + e.key + ": ")
	if !e.isList {
		return o.set(f, from, e.value)
	}
	list, ok := f.Value.(pflag.SliceValue)
	if !ok {
		return fmt.Errorf("%s: %s: takes one value, not a list", e.place, e.key)
	}
	o.origins[f.Name] = from
	f.Changed = true
	return list.Replace(e.list)
}

func (o *Settings) set(f *pflag.Flag, from origin, value string) error {
	o.origins[f.Name] = from
	err := o.flags.Set(f.Name, value)
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) {
		return from.refuse(value, expected(invalid))
	}
	return err
}

// originOf returns where the value of a flag came from. A default is shown as if the command line
// had it.
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

// isServiceVariable reports whether the kubelet made this variable for a Service whose name begins
// with "spillway". Every pod in the Service's namespace gets such variables, spillway's own
// included.
func isServiceVariable(name, value string) bool {
	if serviceVariable.MatchString(name) {
		return true
	}
	return strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
}

var serviceVariable = regexp.MustCompile(
	`_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)$`)

// unknown is an error about a name that no setting has. It names the nearest one, as spell writes
// it, or the remedy.
func (o *Settings) unknown(name string, spell func(string) string, remedy string) error {
	if near := nearest(name, flagNames(o.flags)); near != "" {
		return fmt.Errorf("no such setting; did you mean %s?", spell(near))
	}
	return errors.New("no such setting; " + remedy)
}
