package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// errHelp asks for the help text.
var errHelp = errors.New("help asked for")

// usageError is a command line that cannot be read, as opposed to one that asks for something wrong.
type usageError struct{ error }

// prefixes of the environment variables that set flags. TROUPE_ wins over ETCD_, since it is the more deliberate one.
var environmentPrefixes = []string{"TROUPE_", "ETCD_"}

// flagConfigFile is the flag that makes all others count for nothing.
const flagConfigFile = "config-file"

// parse reads the command line, the environment and, if one is named, the configuration file. The options' warnings and
// notes are to be logged once there is a log.
func parse(args, environ []string) (*options, error) {
	o := defaultOptions()
	fs := newFlagSet(o)
	acceptOthers(fs)
	given, err := parseArguments(fs, args)
	if err != nil || o.version {
		return o, err
	}
	variables := variablesOf(fs, environ, o)
	if path := configPath(o, variables); path != "" {
		return parseFile(path, given, variables, o.warnings)
	}
	if err := applyVariables(fs, variables, given, o); err != nil {
		return o, err
	}
	for _, name := range given {
		o.set[name] = true
	}
	o.noteSettings(fs)
	return o, o.finish()
}

// noteSettings notes what was chosen, in one line that a person can read.
func (o *options) noteSettings(fs *flag.FlagSet) {
	chosen := note{text: "settings that differ from the defaults"}
	fs.VisitAll(func(f *flag.Flag) {
		if value := f.Value.String(); o.set[f.Name] && value != f.DefValue {
			chosen.facts = append(chosen.facts, fact{f.Name, value})
		}
	})
	if len(chosen.facts) == 0 {
		chosen.text = "all settings have their defaults"
	}
	o.notes = append(o.notes, chosen)
}

// parseArguments reads the command line and returns the names of the flags given.
func parseArguments(fs *flag.FlagSet, args []string) ([]string, error) {
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, errHelp
		}
		return nil, usageError{explainParseError(fs, err)}
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a valid flag: flags begin with --, and those that are true or false need the "+
			"value behind an equals sign", fs.Arg(0))
	}
	var given []string
	fs.Visit(func(f *flag.Flag) { given = append(given, f.Name) })
	return given, nil
}

// explainParseError adds to the library's words the nearest known name of an unknown flag, and what a flag takes whose
// value cannot be read.
func explainParseError(fs *flag.FlagSet, err error) error {
	text := err.Error()
	if name, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		return unknownFlag(fs, "--"+strings.TrimPrefix(name, "-"))
	}
	for _, before := range []string{" for flag -", " for -"} {
		_, rest, found := strings.Cut(text, before)
		name, reason, _ := strings.Cut(rest, ":")
		if f := fs.Lookup(name); found && f != nil && strings.TrimSpace(reason) == "parse error" {
			return fmt.Errorf("%w: --%s takes %s (default %s)", err, name, kindOf(f), shown(f.DefValue))
		}
	}
	return err
}

// shown is a default value as a person would write it.
func shown(value string) string {
	if value == "" {
		return "''"
	}
	return value
}

func unknownFlag(fs *flag.FlagSet, spelled string) error {
	name, _, _ := strings.Cut(strings.TrimLeft(spelled, "-"), "=")
	if reason, ok := notProvided[name]; ok {
		return fmt.Errorf("flag provided but not defined: %s is not provided: %s", spelled, reason)
	}
	if plain, ok := strings.CutPrefix(name, "experimental-"); ok {
		return fmt.Errorf("flag provided but not defined: %s: %s", spelled,
			insteadOfExperimental(fs, plain, "--%s", "--feature-gates=%s=true"))
	}
	var names []string
	fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return fmt.Errorf("flag provided but not defined: %s is unknown%s (troupe --help lists all flags)", spelled,
		didYouMean(name, "--", names))
}

// experimentalGates are the --experimental-* flags of etcd 3.5 that have become feature gates.
var experimentalGates = map[string]string{
	"initial-corrupt-check":             "InitialCorruptCheck",
	"compact-hash-check-enabled":        "CompactHashCheck",
	"enable-lease-checkpoint":           gateCheckpoint,
	"enable-lease-checkpoint-persist":   gateCheckpointPersist,
	"stop-grpc-service-on-defrag":       gateStopOnDefragment,
	"txn-mode-write-with-shared-buffer": "TxnModeWriteWithSharedBuffer",
	"set-member-localaddr":              "SetMemberLocalAddr",
}

// insteadOfExperimental says what has become of a flag that etcd 3.7 does not know any more; plain is its name without
// the prefix. flagForm and gateForm spell a flag and a gate where the old one was found.
func insteadOfExperimental(fs *flag.FlagSet, plain, flagForm, gateForm string) string {
	if fs.Lookup(plain) != nil {
		return "since etcd 3.6 it is " + fmt.Sprintf(flagForm, plain)
	}
	if name, ok := experimentalGates[plain]; ok {
		return "since etcd 3.6 it is " + fmt.Sprintf(gateForm, name)
	}
	return "etcd 3.7 has nothing experimental-* any more; what is left of it are feature gates (troupe --help lists all " +
		"flags)"
}

// variable is one that sets a flag.
type variable struct{ key, value, flag string }

// variablesOf finds the TROUPE_* and ETCD_* variables that name a flag. One that names none is only warned about, as
// etcd does, and so is an empty one, which sets nothing.
func variablesOf(fs *flag.FlagSet, environ []string, o *options) []variable {
	var found []variable
	for _, prefix := range environmentPrefixes {
		for _, entry := range environ {
			key, value, _ := strings.Cut(entry, "=")
			suffix, ours := strings.CutPrefix(key, prefix)
			if !ours || suffix == "VERSION" || suffix == "" || testVariable(suffix) {
				continue
			}
			name := strings.ToLower(strings.ReplaceAll(suffix, "_", "-"))
			earlier := slices.IndexFunc(found, func(v variable) bool { return v.flag == name })
			switch {
			case fs.Lookup(name) == nil:
				o.warn("unrecognized environment variable %s=%s", key, value)
			case value == "":
				o.warn("environment variable %s is empty and sets nothing", key)
			case earlier >= 0 && found[earlier].key != key:
				o.warn("%s is ignored: %s sets the same flag", key, found[earlier].key)
			case earlier < 0:
				found = append(found, variable{key, value, name})
			}
		}
	}
	return found
}

// testVariable names variables that steer the project's own tests, not the daemon.
func testVariable(suffix string) bool {
	return strings.HasPrefix(suffix, "TEST_") || suffix == "PEERS_DIR"
}

// configPath is the configuration file that the command line or else the environment names.
func configPath(o *options, variables []variable) string {
	for _, v := range variables {
		if v.flag == flagConfigFile && o.configFile == "" {
			return v.value
		}
	}
	return o.configFile
}

// applyVariables sets flags from the environment. A variable whose flag is given too is an error, as in etcd: either
// could be the one that was meant.
func applyVariables(fs *flag.FlagSet, variables []variable, given []string, o *options) error {
	for _, v := range variables {
		if slices.Contains(given, v.flag) {
			return fmt.Errorf("conflicting environment variable is shadowed by corresponding command-line flag (either "+
				"unset environment variable or disable flag): %s=%s and --%s", v.key, v.value, v.flag)
		}
		if err := fs.Set(v.flag, v.value); err != nil {
			return fmt.Errorf("invalid value %q for %s: %w: --%s takes %s", v.value, v.key, err, v.flag,
				kindOf(fs.Lookup(v.flag)))
		}
		o.set[v.flag] = true
		o.notes = append(o.notes, note{"recognized and used environment variable",
			[]fact{{"variable-name", v.key}, {"variable-value", v.value}}})
	}
	return nil
}

// valueKind says what sort of value a flag has.
type valueKind string

const (
	kindString   valueKind = "a string"
	kindNumber   valueKind = "a whole number"
	kindBool     valueKind = "true or false"
	kindDuration valueKind = "a duration such as 5s or 300ms"
)

// kindOf tells what a flag takes.
func kindOf(f *flag.Flag) valueKind {
	if known, ok := f.Value.(interface{ kind() valueKind }); ok {
		return known.kind()
	}
	getter, ok := f.Value.(flag.Getter)
	if !ok {
		return kindString
	}
	switch getter.Get().(type) {
	case bool:
		return kindBool
	case time.Duration:
		return kindDuration
	case int, int64, uint, uint64:
		return kindNumber
	}
	return kindString
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
