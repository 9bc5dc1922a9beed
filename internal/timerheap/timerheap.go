// Package timerheap orders elements by when they are due. The owner of a heap of deadlines needs
// one timer, for the first element, where each element would need its own otherwise.
package timerheap

import "container/heap"

// Node is embedded in the elements of a Heap. A zero Node is in no heap.
type Node struct{ place int } // index in the heap, plus one

// InHeap reports whether the element is in a heap.
func (n *Node) InHeap() bool { return n.place > 0 }

func (n *Node) node() *Node { return n }

// Element is a pointer to a struct that embeds a Node. It is in one heap at most.
type Element[E any] interface {
	DueBefore(other E) bool
	node() *Node
}

// Heap is a min-heap of elements. It has no lock.
type Heap[E Element[E]] []E

// First is the element that is due first; nil: the heap is empty.
func (h Heap[E]) First() (first E) {
	if len(h) > 0 {
		first = h[0]
	}
	return first
}

// Set adds an element, or moves it after its time has changed.
func (h *Heap[E]) Set(e E) {
	if n := e.node(); n.InHeap() {
		heap.Fix(h, n.place-1)
		return
	}
	heap.Push(h, e)
}

// Remove removes an element. One that is in no heap is left alone.
func (h *Heap[E]) Remove(e E) {
	if n := e.node(); n.InHeap() {
		heap.Remove(h, n.place-1)
	}
}

// Len implements heap.Interface.
func (h Heap[E]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h Heap[E]) Less(i, j int) bool { return h[i].DueBefore(h[j]) }

// Swap implements heap.Interface.
func (h Heap[E]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].node().place, h[j].node().place = i+1, j+1
}

// Push implements heap.Interface.
func (h *Heap[E]) Push(x any) {
	e := x.(E)
	*h = append(*h, e)
	e.node().place = len(*h)
}

// Pop implements heap.Interface.
func (h *Heap[E]) Pop() any {
	var none E
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last], *h = none, (*h)[:last]
	e.node().place = 0
	return e
}
