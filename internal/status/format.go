package status

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Printable replaces everything that a terminal or a page might obey instead of showing it: control
// characters, and those that turn the direction of what follows.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// OneLine is foreign text, such as an error of a library, on one line and without what a terminal
// would obey.
func OneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return Printable(strings.Join(lines, " "))
}

// Bytes is a size as people read it.
func Bytes(n float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for n >= 1023.5 && i < len(units)-1 {
		n /= 1024
		i++
	}
	if i > 0 && n < 9.95 {
		return strconv.FormatFloat(n, 'f', 1, 64) + " " + units[i]
	}
	return strconv.FormatFloat(n, 'f', 0, 64) + " " + units[i]
}

// Count is a number with its thousands apart.
func Count[N int | int64 | uint64](n N) string {
	digits := strconv.FormatInt(int64(n), 10)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

type timeUnit struct {
	size time.Duration
	name string
}

// timeUnits are from the largest to the least, as Seconds writes them.
var timeUnits = []timeUnit{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}

// Seconds is a duration as people read it: its two largest units at most.
func Seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < 2*time.Minute:
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	i := slices.IndexFunc(timeUnits, func(u timeUnit) bool { return d >= u.size })
	large, small := timeUnits[i], timeUnits[i+1]
	text := strconv.FormatInt(int64(d/large.size), 10) + large.name
	if rest := d % large.size / small.size; rest > 0 {
		text += strconv.FormatInt(int64(rest), 10) + small.name
	}
	return text
}
