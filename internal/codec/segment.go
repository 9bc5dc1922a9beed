package codec

import (
	"encoding/binary"
	"hash/crc32"
	"hash/maphash"
	"io"
	"math/bits"
	"slices"
	"sync"

	"github.com/klauspost/compress/flate"

	"spillway/internal/object"
)

// segment is a run of a list's items, compressed once for all lists that have the same run: raw
// deflate that ends on the border of a byte, after a sync flush, and behind it what is needed to
// join it with others: the content's CRC-32, its crcShift and its size.
//
// Each is compressed by itself, since one that referred to the one before would have to be made
// again whenever that is.
type segment []byte

// segmentTrailer is how many bytes are not deflate.
const segmentTrailer = 12

func (s segment) deflated() []byte { return s[:len(s)-segmentTrailer] }

func (s segment) sums() (crc, shift uint32, size int) {
	t := s[len(s)-segmentTrailer:]
	return binary.LittleEndian.Uint32(t), binary.LittleEndian.Uint32(t[4:]), int(binary.LittleEndian.Uint32(t[8:]))
}

// How many bytes of items a segment has. Small ones compress less well, in large ones a change
// costs more.
const (
	segmentMinBytes    = 32 << 10
	segmentTargetBytes = 64 << 10 // on average, about
	segmentMaxBytes    = 256 << 10
)

// segmentCuts makes cuts differ between processes, so that no client can choose names that make bad
// cuts.
var segmentCuts = maphash.MakeSeed()

// cutsBefore reports whether a segment begins with an item of this size. It depends on the item
// alone, so that runs stay the same around those that come and go; and on the size by its order of
// magnitude, so that a change seldom moves a cut.
func cutsBefore(key string, size int) bool {
	odds := uint64(segmentTargetBytes) >> bits.Len(uint(size))
	return odds <= 1 || maphash.String(segmentCuts, key)%odds == 0
}

// SegmentSplitter cuts objects in order into runs to be compressed together. The zero value is
// before the first.
type SegmentSplitter struct{ size int }

// Before reports whether a run ends before this object, of which n bytes are to be compressed.
func (c *SegmentSplitter) Before(o *object.Object, n int) bool {
	cut := c.size >= segmentMaxBytes || c.size >= segmentMinBytes && cutsBefore(o.Key, n)
	if cut {
		c.size = 0
	}
	c.size += n
	return cut
}

// segments calls f for each run of items that is to be a segment.
func (l *List) segments(f func(from, to int)) {
	var cutter SegmentSplitter
	from := 0
	around := len(l.prefix) + len(l.suffix) + len(l.separator)
	for i, o := range l.items {
		if cutter.Before(o, len(l.parts[i])+around) {
			f(from, i)
			from = i
		}
	}
	if from < len(l.items) {
		f(from, len(l.items))
	}
}

// segment is the items in [from, to), compressed.
func (l *List) segment(from, to int) segment {
	s, _ := l.items[from].Form(segmentForm(l.enc), l.items[from+1:to]...).Get(func() ([]byte, error) {
		return l.compress(from, to), nil
	})
	return s
}

// deflater compresses at upstream's level (W-6). Each is a few hundred KiB.
type deflater struct {
	z       *flate.Writer
	content []byte
	out     appender
}

var deflaters = sync.Pool{New: func() any {
	z, err := flate.NewWriter(io.Discard, flate.BestSpeed)
	if err != nil { // the level is a constant
		panic(err)
	}
	return &deflater{z: z}
}}

func (l *List) compress(from, to int) segment {
	d := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	d.content, d.out = d.content[:0], d.out[:0]
	for i := from; i < to; i++ {
		if i > from {
			d.content = append(d.content, l.separator...)
		}
		d.content = append(d.content, l.prefix...)
		d.content = append(d.content, l.parts[i]...)
		d.content = append(d.content, l.suffix...)
	}
	d.z.Reset(&d.out)
	_, _ = d.z.Write(d.content) // writing to memory does not fail
	_ = d.z.Flush()
	s := append(make(segment, 0, len(d.out)+segmentTrailer), d.out...)
	s = binary.LittleEndian.AppendUint32(s, crc32.ChecksumIEEE(d.content))
	s = binary.LittleEndian.AppendUint32(s, crcShift(len(d.content)))
	s = binary.LittleEndian.AppendUint32(
		s, uint32(len(d.content))) // #nosec G115 -- modulo 2^32, as in the trailer of gzip (RFC 1952)
	if cap(d.content) > 2*segmentMaxBytes { // after one huge object
		d.content, d.out = nil, nil
	}
	return s
}

// Compressed is a list as one gzip member, of which all is at hand. It does not need the objects
// any more.
type Compressed struct {
	parts [][]byte
	size  int
	crc   uint32
	total uint32 // bytes of content, modulo 2^32
}

// gzipHead is what every gzip member begins with here: deflate, no name, no time, and an unknown
// operating system (RFC 1952).
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// Compress makes the list a gzip member. What has been compressed before, for whomever, is not
// compressed again. The list is used up.
func (l *List) Compress() *Compressed {
	c := &Compressed{}
	c.add(gzipHead)
	c.addStored(l.head, false)
	separator := appendStored(nil, []byte(l.separator), false)
	l.segments(func(from, to int) {
		if from > 0 && l.separator != "" {
			c.add(separator)
			c.sum([]byte(l.separator))
		}
		c.addSegment(l.segment(from, to))
	})
	c.addStored(l.tail, true)
	c.add(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, c.crc), c.total))
	l.items, l.parts = nil, nil
	return c
}

func (c *Compressed) add(b []byte) {
	c.parts = append(c.parts, b)
	c.size += len(b)
}

func (c *Compressed) addSegment(s segment) {
	crc, shift, size := s.sums()
	c.add(s.deflated())
	c.crc = crcJoin(c.crc, crc, shift)
	c.total += uint32(size) // #nosec G115 -- modulo 2^32, as in the trailer of gzip (RFC 1952)
}

func (c *Compressed) addStored(content []byte, final bool) {
	c.add(appendStored(nil, content, final))
	c.sum(content)
}

// sum adds to the checksum what was added otherwise.
func (c *Compressed) sum(content []byte) {
	c.crc = crc32.Update(c.crc, crc32.IEEETable, content)
	c.total += uint32(len(content)) // #nosec G115 -- modulo 2^32, as in the trailer of gzip (RFC 1952)
}

// storedBytesLimit is how much a stored block may hold (RFC 1951, 3.2.4).
const storedBytesLimit = 1<<16 - 1

// appendStored appends content in deflate blocks that are not compressed: what is shorter than a
// compressor's tables.
func appendStored(dst, content []byte, final bool) []byte {
	for block := range slices.Chunk(content, storedBytesLimit) {
		content = content[len(block):]
		last := byte(0)
		if final && len(content) == 0 {
			last = 1
		}
		dst = append(dst, last)
		dst = binary.LittleEndian.AppendUint16(
			dst, uint16(len(block))) // #nosec G115 -- a stored block has at most 65535 bytes (storedBytesLimit)
		dst = binary.LittleEndian.AppendUint16(
			dst, ^uint16(len(block))) // #nosec G115 -- a stored block has at most 65535 bytes (storedBytesLimit)
		dst = append(dst, block...)
	}
	return dst
}

// Size is the number of bytes of the member.
func (c *Compressed) Size() int { return c.size }

// WriteTo writes the member in pieces. It can be called once.
func (c *Compressed) WriteTo(w io.Writer) (int64, error) {
	out := newPieces(w, c.size)
	defer out.close()
	for i, part := range c.parts {
		out.write(part)
		c.parts[i] = nil
	}
	return out.finish()
}
