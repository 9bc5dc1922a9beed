package codec

import (
	"hash/crc32"
	"testing"
)

// FuzzChecksum: checksums of parts, joined, are the checksum of the whole.
func FuzzChecksum(f *testing.F) {
	f.Add([]byte("123456789"), []byte(""), uint16(0))
	f.Add([]byte(""), []byte("a"), uint16(1000))
	f.Add([]byte("abc"), []byte("def"), uint16(65535))
	f.Fuzz(func(t *testing.T, a, b []byte, more uint16) {
		b = append(b, make([]byte, more)...)
		whole := crc32.ChecksumIEEE(append(a[:len(a):len(a)], b...))
		if got := crcJoin(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), crcShift(len(b))); got != whole {
			t.Errorf("%q and %q: %08x, want %08x", a, b, got, whole)
		}
	})
}

// The exponents of long contents go around once.
func TestChecksumOfLongContent(t *testing.T) {
	const n = 1<<29 + 5 // bytes, 2^32+40 bits
	zeros := make([]byte, 1<<20)
	want := crc32.ChecksumIEEE([]byte("x"))
	for rest := n; rest > 0; rest -= len(zeros) {
		zeros = zeros[:min(rest, len(zeros))]
		want = crc32.Update(want, crc32.IEEETable, zeros)
	}
	var sum uint32
	for rest := n; rest > 0; rest -= 1 << 20 {
		sum = crc32.Update(sum, crc32.IEEETable, make([]byte, min(rest, 1<<20)))
	}
	if got := crcJoin(crc32.ChecksumIEEE([]byte("x")), sum, crcShift(n)); got != want {
		t.Errorf("%08x, want %08x", got, want)
	}
}
