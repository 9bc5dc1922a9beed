package rotation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	clocktesting "k8s.io/utils/clock/testing"
)

// words is a Value of the text of files, which must not hold "bad".
func words(t *testing.T, log *zap.Logger, clock *clocktesting.FakeClock, names ...string) *Value[string] {
	t.Helper()
	v, err := New(Options[string]{
		Use: "words", Read: Files(names...), Clock: clock, Log: log,
		Parse: func(parts []Part) (string, time.Time, error) {
			text := ""
			for _, p := range parts {
				text += string(p.Text)
			}
			if strings.Contains(text, "bad") {
				return "", time.Time{}, errors.New("bad words")
			}
			return text, time.Unix(int64(len(text)), 0), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestValueKeepsWhatWasGood(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put(t, a, "one ")
	put(t, b, "two")
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	core, logs := observer.New(zap.InfoLevel)
	v := words(t, zap.New(core), clock, a, b)
	check := func(want string, changes uint64, lines int, failed string) {
		t.Helper()
		for range 3 { // what is wrong is said once
			v.Look()
		}
		if got := v.Get(); got != want {
			t.Errorf("%q is in use, want %q", got, want)
		}
		for _, s := range v.States() {
			if s.Changes != changes || (s.Err == nil) != (failed == "") || s.Err != nil &&
				!strings.Contains(s.Err.Error(), failed) {
				t.Errorf("%s: %d changes, %v; want %d, %q", s.File, s.Changes, s.Err, changes, failed)
			}
		}
		if logs.Len() != lines {
			t.Errorf("%d lines, want %d: %v", logs.Len(), lines, logs.All())
		}
	}
	check("one two", 0, 0, "")
	put(t, b, "three")
	check("one three", 1, 1, "")
	put(t, b, "bad")
	check("one three", 1, 2, "bad words")
	if err := os.Remove(a); err != nil {
		t.Fatal(err)
	}
	check("one three", 1, 3, a)
	put(t, a, "one ")
	put(t, b, "three")
	check("one three", 1, 4, "")
	put(t, b, "four")
	check("one four", 2, 5, "")
	if s := v.States(); len(s) != 2 || s[0].File != a || s[1].File != b || !s[0].Since.Equal(clock.Now()) ||
		s[0].Expires.Unix() != int64(len("one four")) {
		t.Errorf("%+v", s)
	}
}

func TestValueIsReadOnceInTheGivenTime(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	put(t, name, "one")
	clock := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	v := words(t, nil, clock, name)
	put(t, name, "two")
	clock.Step(time.Second - 1)
	if got := v.Recent(time.Second); got != "one" {
		t.Errorf("%q after less than a second", got)
	}
	clock.Step(1)
	if got := v.Recent(time.Second); got != "two" {
		t.Errorf("%q after a second", got)
	}
}

// The kubelet renames a symbolic link. The files that it leads to may be as long and as old as
// those before.
func TestValueBehindALink(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"v1", "v2"} {
		if err := os.Mkdir(filepath.Join(dir, version), 0o700); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, version, "a")
		put(t, name, version)
		if err := os.Chtimes(name, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
	}
	point := func(version string) {
		t.Helper()
		if err := os.Symlink(version, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	point("v1")
	v := words(t, nil, clocktesting.NewFakeClock(time.Now()), filepath.Join(dir, "..data", "a"))
	point("v2")
	if !v.Look() || v.Get() != "v2" {
		t.Errorf("%q is in use", v.Get())
	}
}

func TestValueIsForManyReaders(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	put(t, name, "0")
	v := words(t, nil, clocktesting.NewFakeClock(time.Now()), name)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 200 {
				v.Recent(0)
				v.States()
			}
		})
	}
	for i := range 200 {
		next := name + ".next"
		put(t, next, fmt.Sprint(i))
		if err := os.Rename(next, name); err != nil {
			t.Fatal(err)
		}
	}
	group.Wait()
	if v.Look(); v.Get() != "199" {
		t.Errorf("%q is in use", v.Get())
	}
}

// issue makes a certificate that vouches for itself until end.
func issue(t *testing.T, end time.Time) (certificate, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text})
}

func TestAuthoritiesAreReadWhole(t *testing.T) {
	end := time.Unix(1_900_000_000, 0)
	first, _ := issue(t, end)
	second, _ := issue(t, end.Add(time.Hour))
	const broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	both := "a comment\n" + string(second) + string(first)
	for name, tc := range map[string]struct {
		text          string
		strict, roots int
	}{
		"two":              {both, 2, 2},
		"one cut off":      {both[:len(both)-40], 0, 0},
		"one not readable": {broken + both, 0, 2},
		"none":             {"half a file", 0, 0},
		"none readable":    {broken, 0, 0},
		"empty":            {"", 0, 0},
	} {
		for what, read := range map[string]struct {
			parse func([]byte) (*Authorities, time.Time, error)
			want  int
		}{"authorities": {ParseAuthorities, tc.strict}, "roots": {ParseRoots, tc.roots}} {
			got, expires, err := read.parse([]byte(tc.text))
			switch {
			case (err == nil) != (read.want > 0):
				t.Errorf("%s as %s: %v", name, what, err)
			case err == nil && (len(got.Certificates) != read.want || !expires.Equal(end.Add(time.Hour))):
				t.Errorf("%s as %s: %d certificates, until %s", name, what, len(got.Certificates), expires)
			}
		}
	}
}

func TestPairsMustFit(t *testing.T) {
	end := time.Unix(1_900_000_000, 0)
	cert, key := issue(t, end)
	_, other := issue(t, end)
	if _, expires, err := ParsePair(cert, key); err != nil || !expires.Equal(end) {
		t.Errorf("until %s, %v", expires, err)
	}
	if _, _, err := ParsePair(cert, other); err == nil {
		t.Error("a key that does not fit was taken")
	}
}

// FuzzAuthorities: a file is certificates, or an error.
func FuzzAuthorities(f *testing.F) {
	f.Add([]byte(""))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nA: b\n\nAAAA\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, parse := range []func([]byte) (*Authorities, time.Time, error){ParseAuthorities, ParseRoots} {
			if got, _, err := parse(text); (err == nil) != (got != nil && len(got.Certificates) > 0) {
				t.Errorf("%v, %v", got, err)
			}
		}
	})
}
