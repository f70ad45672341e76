package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// nanosecondsSuspect is a duration below which a bare number in the file was probably meant in another unit: etcd's
// file has nanoseconds, and nothing that a flag sets is as short as this.
const nanosecondsSuspect = time.Microsecond

// parseFile reads the configuration file. As with etcd nothing else counts then, but each flag and variable that does
// not count is named.
func parseFile(path string, given []string, variables []variable, warnings []string) (*options, error) {
	o := defaultOptions()
	o.warnings = warnings
	values, err := readFile(path, o)
	if err != nil {
		return o, fmt.Errorf("--config-file: %w", err)
	}
	fs := newFlagSet(o)
	acceptOthers(fs)
	o.configFile = path // after the flags, which begin with their defaults
	for _, key := range sortedKeys(values) {
		if err := setFromFile(fs, key, values[key], o); err != nil {
			return o, fmt.Errorf("--config-file %s: %w", path, err)
		}
	}
	for _, name := range given {
		if name != flagConfigFile {
			o.warn("--%s is ignored, because --config-file %s is given and replaces all flags", name, path)
		}
	}
	for _, v := range variables {
		if v.flag != flagConfigFile {
			o.warn("environment variable %s is ignored, because --config-file %s is given and replaces all variables",
				v.key, path)
		}
	}
	if o.set["listen-client-urls"] && !o.set["advertise-client-urls"] {
		o.set["advertise-client-urls"] = true // etcd asks for it on the command line only
		o.warn("--config-file %s: advertise-client-urls is not set, and listen-client-urls is: clients are told the "+
			"default, %s", path, fs.Lookup("advertise-client-urls").Value)
	}
	o.noteSettings(fs)
	o.notes = append(o.notes, note{"loaded server configuration, other configuration command line flags and environment " +
		"variables will be ignored if provided", []fact{{"path", path}}})
	return o, o.finish()
}

// readFile gives the keys of a YAML or JSON file. A key that is there twice counts with its last value, as with etcd,
// and is warned about.
func readFile(path string, o *options) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err // names the path
	}
	body, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		doubled := err
		if body, err = yaml.YAMLToJSON(text); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		o.warn("--config-file %s: a key is given twice, the last one counts: %s", path,
			strings.Join(strings.Fields(doubled.Error()), " "))
	}
	values := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber() // the largest numbers do not fit into a float
	if err := decoder.Decode(&values); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s is not a list of \"flag: value\": %w", path, err)
	}
	return values, nil
}

// sections are the maps of etcd's file: the flag that a key in them stands for.
var sections = map[string]map[string]string{
	"socket-options": {"reuse-port": "socket-reuse-port", "reuse-address": "socket-reuse-address"},
	"client-transport-security": {
		"cert-file": "cert-file", "key-file": "key-file", "client-cert-file": "client-cert-file",
		"client-key-file": "client-key-file", "client-cert-auth": "client-cert-auth",
		"trusted-ca-file": "trusted-ca-file", "auto-tls": "auto-tls", "client-crl-file": "client-crl-file",
		"allowed-hostname": "client-cert-allowed-hostname",
	},
	"peer-transport-security": {
		"cert-file": "peer-cert-file", "key-file": "peer-key-file", "client-cert-file": "peer-client-cert-file",
		"client-key-file": "peer-client-key-file", "client-cert-auth": "peer-client-cert-auth",
		"trusted-ca-file": "peer-trusted-ca-file", "auto-tls": "peer-auto-tls", "peer-crl-file": "peer-crl-file",
		"allowed-cn": "peer-cert-allowed-cn", "allowed-hostname": "peer-cert-allowed-hostname",
		"skip-client-san-verification": "peer-skip-client-san-verification",
	},
}

// sectionDiscovery is a map whose feature this version does not have; one that is empty asks for nothing.
const sectionDiscovery = "discovery-config"

func setFromFile(fs *flag.FlagSet, key string, value any, o *options) error {
	switch {
	case slices.Contains(ignoredKeys, key) || key == flagConfigFile || key == "version":
		o.warn("--config-file %s: %s is ignored, as by etcd", o.configFile, key)
		return nil
	case value == nil: // "key:" asks for the default
		return nil
	case key == sectionDiscovery:
		return checkEmpty(key, value)
	case sections[key] != nil:
		return setSection(fs, key, value, o)
	}
	return setKey(fs, key, key, value, o)
}

// setSection reads one of the maps.
func setSection(fs *flag.FlagSet, section string, value any, o *options) error {
	entries, ok := value.(map[string]any)
	if !ok {
		return fmt.Errorf("%s=%v: want a map of %s", section, value, strings.Join(sortedKeys(sections[section]), ", "))
	}
	for _, key := range sortedKeys(entries) {
		name, known := sections[section][key]
		if !known {
			return fmt.Errorf("%s has the unknown key %s=%v%s", section, key, entries[key],
				didYouMeanOneOf(key, sortedKeys(sections[section])))
		}
		if entries[key] == nil {
			continue
		}
		if err := setKey(fs, section+"."+key, name, entries[key], o); err != nil {
			return err
		}
	}
	return nil
}

// checkEmpty refuses a map that asks for something.
func checkEmpty(key string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range sortedKeys(v) {
			if err := checkEmpty(key+"."+name, v[name]); err != nil {
				return err
			}
		}
		return nil
	case []any:
		if len(v) == 0 {
			return nil
		}
	case json.Number:
		if v == "0" {
			return nil
		}
	}
	if value == nil || value == "" || value == false {
		return nil
	}
	return fmt.Errorf("%s=%v: this version of troupe does not have what it asks for yet; leave it out", key, value)
}

// setKey sets a flag to a value of the file; key is how the file names it.
func setKey(fs *flag.FlagSet, key, name string, value any, o *options) error {
	f := fs.Lookup(name)
	if f == nil {
		var names []string
		fs.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
		// As with etcd, so that a file of another version starts; in the sections, which protect, a typo is refused.
		if plain, ok := strings.CutPrefix(name, "experimental-"); ok {
			o.warn("--config-file %s: the key %s=%v is ignored, as by etcd: %s", o.configFile, key, value,
				insteadOfExperimental(fs, plain, "%s: ...", "feature-gates: %s=true"))
			return nil
		}
		o.warn("--config-file %s: the unknown key %s=%v is ignored%s", o.configFile, key, value,
			didYouMean(name, "", names))
		return nil
	}
	text, ok := fileText(f, value)
	if !ok {
		return fmt.Errorf("%s=%s: want %s", key, spelled(value), fileKind(f))
	}
	if kindOf(f) == kindDuration {
		if d, err := time.ParseDuration(text); err == nil && d > 0 && d < nanosecondsSuspect {
			o.warn("--config-file %s: %s=%v is %s, because a number is in nanoseconds here; write %q for seconds",
				o.configFile, key, value, d, fmt.Sprint(value)+"s")
		}
	}
	if err := fs.Set(name, text); err != nil {
		return fmt.Errorf("%s=%s: %w", key, spelled(value), err)
	}
	o.set[name] = true
	return nil
}

// spelled is a value as the file would spell it.
func spelled(value any) string {
	if text, err := json.Marshal(value); err == nil {
		return string(text)
	}
	return fmt.Sprint(value)
}

// fileKind says what the file may have for a flag.
func fileKind(f *flag.Flag) string {
	switch {
	case kindOf(f) == kindDuration:
		return "a whole number of nanoseconds, or a string such as \"5s\""
	case f.Name == "log-outputs":
		return "a list of strings"
	}
	return string(kindOf(f))
}

// fileText is a value of the file as a command line would spell it; false when it is of the wrong type.
func fileText(f *flag.Flag, value any) (string, bool) {
	kind := kindOf(f)
	switch v := value.(type) {
	case string:
		return v, kind == kindString || kind == kindDuration
	case bool:
		return strconv.FormatBool(v), kind == kindBool
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return "", false
		}
		if kind == kindDuration {
			return v.String() + "ns", true
		}
		return v.String(), kind == kindNumber
	case []any:
		words := make([]string, len(v))
		for i := range v {
			word, ok := v[i].(string)
			if !ok {
				return "", false
			}
			words[i] = word
		}
		return strings.Join(words, ","), f.Name == "log-outputs" || f.Name == "cipher-suites"
	}
	return "", false
}
