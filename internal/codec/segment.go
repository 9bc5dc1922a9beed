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
// deflate that ends on the border of a byte, after a sync flush. A trailer joins it with others:
// the content's CRC-32, its crcShift and its size.
//
// Each is compressed by itself: one that referred to its predecessor would have to be made again
// whenever that changes.
type segment []byte

const segmentTrailerBytes = 12

func (s segment) deflated() []byte { return s[:len(s)-segmentTrailerBytes] }

func (s segment) sums() (crc, shift uint32, size int) {
	t := s[len(s)-segmentTrailerBytes:]
	return binary.LittleEndian.Uint32(t), binary.LittleEndian.Uint32(t[4:]), int(binary.LittleEndian.Uint32(t[8:]))
}

// How many bytes of items a segment has. Small segments compress less well; in large ones a change
// costs more.
const (
	segmentMinBytes    = 32 << 10
	segmentTargetBytes = 64 << 10 // on average, about
	segmentMaxBytes    = 256 << 10
)

// segmentCuts makes cuts differ between processes, so that no client can choose names that make bad
// cuts.
var segmentCuts = maphash.MakeSeed()

// beginsSegment reports whether a segment begins with an item. It depends on the item alone, so
// that runs stay the same around items that come and go, and on its size only by order of
// magnitude, so that a change seldom moves a cut.
func beginsSegment(key string, size int) bool {
	odds := uint64(segmentTargetBytes) >> bits.Len(uint(size))
	return odds <= 1 || maphash.String(segmentCuts, key)%odds == 0
}

// SegmentSplitter cuts objects in order into runs to be compressed together. The zero value has
// seen no object.
type SegmentSplitter struct{ size int }

// Before reports whether a run ends in front of this object, of which n bytes are to be compressed.
func (c *SegmentSplitter) Before(o *object.Object, n int) bool {
	isCut := c.size >= segmentMaxBytes || c.size >= segmentMinBytes && beginsSegment(o.Key, n)
	if isCut {
		c.size = 0
	}
	c.size += n
	return isCut
}

// eachSegment calls f for each run of items that is to be a segment.
func (l *List) eachSegment(f func(from, to int)) {
	var cutter SegmentSplitter
	from := 0
	around := len(l.around.prefix) + len(l.around.suffix) + len(l.around.separator)
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
		return l.compressItems(from, to), nil
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

func (l *List) compressItems(from, to int) segment {
	d := deflaters.Get().(*deflater)
	defer deflaters.Put(d)
	d.content, d.out = d.content[:0], d.out[:0]
	for i := from; i < to; i++ {
		if i > from {
			d.content = append(d.content, l.around.separator...)
		}
		d.content = append(d.content, l.around.prefix...)
		d.content = append(d.content, l.parts[i]...)
		d.content = append(d.content, l.around.suffix...)
	}
	d.z.Reset(&d.out)
	_, _ = d.z.Write(d.content) // writing to memory does not fail
	_ = d.z.Flush()
	s := append(make(segment, 0, len(d.out)+segmentTrailerBytes), d.out...)
	s = binary.LittleEndian.AppendUint32(s, crc32.ChecksumIEEE(d.content))
	s = binary.LittleEndian.AppendUint32(s, crcShift(len(d.content)))
	s = binary.LittleEndian.AppendUint32(
		s, uint32(len(d.content))) // #nosec G115 -- modulo 2^32, as in the trailer of gzip (RFC 1952)
	if cap(d.content) > 2*segmentMaxBytes { // after one huge object
		d.content, d.out = nil, nil
	}
	return s
}

// Compressed is a list as one gzip member, complete in memory. It keeps no objects.
type Compressed struct {
	parts [][]byte
	size  int
	crc   uint32 // of the content
	total uint32 // bytes of content, modulo 2^32
}

// gzipHead is what every gzip member begins with here: deflate, no name, no time, and an unknown
// operating system (RFC 1952).
var gzipHead = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// Compress makes a gzip member of the list, and uses the list up. Segments that were made for any
// list are not compressed again.
func (l *List) Compress() *Compressed {
	c := &Compressed{}
	c.add(gzipHead)
	c.addStored(l.head, false)
	separator := appendStored(nil, []byte(l.around.separator), false)
	l.eachSegment(func(from, to int) {
		if from > 0 && l.around.separator != "" {
			c.add(separator)
			c.addSum([]byte(l.around.separator))
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

func (c *Compressed) addStored(content []byte, isFinal bool) {
	c.add(appendStored(nil, content, isFinal))
	c.addSum(content)
}

// addSum counts content that was added without a segment.
func (c *Compressed) addSum(content []byte) {
	c.crc = crc32.Update(c.crc, crc32.IEEETable, content)
	c.total += uint32(len(content)) // #nosec G115 -- modulo 2^32, as in the trailer of gzip (RFC 1952)
}

// storedBytesLimit is how much a stored block may hold (RFC 1951, 3.2.4).
const storedBytesLimit = 1<<16 - 1

// appendStored appends content in deflate blocks without compression, for content that is shorter
// than a compressor's tables.
func appendStored(dst, content []byte, isFinal bool) []byte {
	for block := range slices.Chunk(content, storedBytesLimit) {
		content = content[len(block):]
		lastBlock := byte(0)
		if isFinal && len(content) == 0 {
			lastBlock = 1
		}
		size := uint16(len(block)) // #nosec G115 -- a stored block has at most 65535 bytes (storedBytesLimit)
		dst = append(dst, lastBlock)
		dst = binary.LittleEndian.AppendUint16(dst, size)
		dst = binary.LittleEndian.AppendUint16(dst, ^size)
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
