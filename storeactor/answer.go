package storeactor

import (
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	"troupe/proto"
)

// rangeResult is what a range found, before it is written: references to stored bytes.
type rangeResult struct {
	kvs   [][]byte // encoded KeyValues
	more  bool
	count int64
	bytes int // of kvs with tag and length

	pooled *[][]byte // where kvs came from, if borrowed
}

func (r *rangeResult) add(kv []byte) {
	r.kvs = append(r.kvs, kv)
	r.bytes += sizeBytesField(len(kv))
}

// rangeLists are lists for rangeResult.kvs, so that a large range does not grow one each time.
var rangeLists = sync.Pool{New: func() any { return new([][]byte) }}

// borrow gives the result a pooled list. After it was written, giveBack must be called.
func (r *rangeResult) borrow() { r.pooled = rangeLists.Get().(*[][]byte); r.kvs = (*r.pooled)[:0] }

func (r *rangeResult) giveBack() {
	if r.pooled != nil {
		clear(r.kvs)
		*r.pooled = r.kvs[:0]
		rangeLists.Put(r.pooled)
		r.pooled, r.kvs = nil, nil
	}
}

func (r *rangeResult) size() int {
	n := r.bytes + sizeVarintField(uint64(r.count))
	if r.more {
		n += 2
	}
	return n
}

func (r *rangeResult) write(w *bodyWriter) {
	for _, kv := range r.kvs {
		w.field(tagRangeKeyValue, kv)
	}
	if r.more {
		w.number(tagRangeMore, 1)
	}
	w.number(tagRangeCount, uint64(r.count))
}

// opKind says what an operation of a txn was.
type opKind uint8

const (
	opNone opKind = iota
	opRange
	opPut
	opDelete
	opTxn
)

// opResult is the result of one operation, alone or inside a txn.
type opResult struct {
	kind     opKind
	revision proto.Revision // of the inner header
	ranged   rangeResult    // opRange
	deleted  int64          // opDelete
	previous [][]byte       // opPut (at most one) and opDelete
	txn      *txnResult     // opTxn
	bytes    int            // of the message with its header, set by measure
}

// txnResult is the result of a txn.
type txnResult struct {
	succeeded bool
	ops       []opResult
}

// size is the encoded length without the header.
func (o *opResult) size() int {
	switch o.kind {
	case opRange:
		return o.ranged.size()
	case opTxn:
		return o.txn.size()
	}
	n := sizeVarintField(uint64(o.deleted))
	for _, kv := range o.previous {
		n += sizeBytesField(len(kv))
	}
	return n
}

// write writes the message without its header.
func (o *opResult) write(w *bodyWriter) {
	switch o.kind {
	case opRange:
		o.ranged.write(w)
	case opPut:
		for _, kv := range o.previous {
			w.field(tagPutPrevious, kv)
		}
	case opDelete:
		w.number(tagDeleteDeleted, uint64(o.deleted))
		for _, kv := range o.previous {
			w.field(tagDeletePrevious, kv)
		}
	case opTxn:
		o.txn.write(w)
	}
}

// headerSize is the size of an inner header, which has nothing but a revision, and that of a nested txn nothing at
// all.
func (o *opResult) headerSize() int { return sizeBytesField(sizeVarintField(uint64(o.revision))) }

// measure gives the size of the ResponseOp, and keeps what write needs of it.
func (o *opResult) measure() int {
	if o.kind == opNone {
		return 0
	}
	o.bytes = o.headerSize() + o.size()
	return sizeBytesField(o.bytes)
}

// writeOp writes the ResponseOp. measure must have been called.
func (o *opResult) writeOp(w *bodyWriter) {
	tag := byte(tagOpRange)
	switch o.kind {
	case opNone:
		w.head(tagTxnResponse, 0)
		return
	case opPut:
		tag = tagOpPut
	case opDelete:
		tag = tagOpDelete
	case opTxn:
		tag = tagOpTxn
	}
	w.head(tagTxnResponse, sizeBytesField(o.bytes))
	w.head(tag, o.bytes)
	w.head(tagHeader, sizeVarintField(uint64(o.revision)))
	w.number(tagHeaderRevision, uint64(o.revision))
	o.write(w)
}

func (t *txnResult) size() int {
	n := 0
	if t.succeeded {
		n = 2
	}
	for i := range t.ops {
		n += sizeBytesField(t.ops[i].measure())
	}
	return n
}

// write writes the TxnResponse without its header. size must have been called.
func (t *txnResult) write(w *bodyWriter) {
	if t.succeeded {
		w.number(tagTxnSucceeded, 1)
	}
	for i := range t.ops {
		t.ops[i].writeOp(w)
	}
}

// answerChunk is a pooled piece of an answer.
type answerChunk [answerChunkBytes]byte

var answerChunks = sync.Pool{New: func() any { return new(answerChunk) }}

// bodyWriter writes an answer: small ones into one allocation of their own, others into pooled chunks, and large
// values not at all, they are referenced. What is referenced is memory of ours that never changes; bytes of the file
// have been copied before they get here.
type bodyWriter struct {
	pieces [][]byte
	chunks []*answerChunk
	open   []byte // the piece being filled; its array does not grow
	pooled bool
}

// ownedResult is a result with room for its only piece, so that a small answer costs two allocations.
type ownedResult struct {
	proto.Result
	piece [1][]byte
}

// message is what can be written.
type message interface{ write(w *bodyWriter) }

// newResult makes the answer with that revision and, unless it is nil or empty, that body. size must be m's.
func newResult(revision proto.Revision, m message, size int) *proto.Result {
	if m == nil || size == 0 {
		return &proto.Result{Revision: revision}
	}
	if size <= answerSmallBytes {
		w := bodyWriter{open: make([]byte, 0, size)}
		m.write(&w)
		return newOwnedResult(revision, w.open)
	}
	w := bodyWriter{pooled: true}
	m.write(&w)
	w.close()
	return &proto.Result{Revision: revision, Body: proto.Body{Pieces: w.pieces, Release: w.release}}
}

// newOwnedResult makes the answer with that body, which must not be empty.
func newOwnedResult(revision proto.Revision, body []byte) *proto.Result {
	r := &ownedResult{}
	r.piece[0] = body
	r.Revision, r.Body.Pieces = revision, r.piece[:]
	return &r.Result
}

func newBytesResult(revision proto.Revision, body []byte) *proto.Result {
	if len(body) == 0 {
		return &proto.Result{Revision: revision}
	}
	return newOwnedResult(revision, body)
}

// number writes a number; zero is omitted.
func (w *bodyWriter) number(tag byte, v uint64) {
	w.room(1 + protowire.SizeVarint(v))
	w.open = appendVarintField(w.open, tag, v)
}

// head writes tag and length of a field.
func (w *bodyWriter) head(tag byte, n int) {
	w.room(sizeBytesField(n) - n)
	w.open = appendBytesHead(w.open, tag, n)
}

// field writes a field with its bytes.
func (w *bodyWriter) field(tag byte, b []byte) {
	w.head(tag, len(b))
	if w.pooled && len(b) >= answerReferenceBytes {
		w.close()
		w.pieces = append(w.pieces, b)
		return
	}
	w.room(len(b))
	w.open = append(w.open, b...)
}

// room makes sure that the open piece takes n more bytes, n being at most a chunk.
func (w *bodyWriter) room(n int) {
	if !w.pooled || cap(w.open)-len(w.open) >= n {
		return
	}
	w.close()
	if cap(w.open) >= n {
		return
	}
	c := answerChunks.Get().(*answerChunk)
	w.chunks = append(w.chunks, c)
	w.open = c[:0]
}

// close ends the open piece; what is left of its chunk may be used for the next.
func (w *bodyWriter) close() {
	if len(w.open) > 0 {
		n := len(w.open)
		w.pieces = append(w.pieces, w.open[:n:n])
		w.open = w.open[n:]
	}
}

func (w *bodyWriter) release() {
	for _, c := range w.chunks {
		answerChunks.Put(c)
	}
	w.chunks = nil
}
