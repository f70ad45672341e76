package storeactor

import (
	"bytes"
	"io"

	"troupe/actors"
)

// modelCopy is FileCopy over a second model. A crash leaves nothing of it until it has become the file.
type modelCopy struct {
	*ModelFile
	of *ModelFile
}

// Copy implements File.
func (f *ModelFile) Copy() (FileCopy, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil, ErrFileClosed
	}
	return &modelCopy{ModelFile: NewModelFile(f.options), of: f}, nil
}

// Flush implements FileCopy.
func (c *modelCopy) Flush() error { return nil }

// Discard implements FileCopy.
func (c *modelCopy) Discard() error { return c.Close() }

// Become implements FileCopy. A copy that does not hold what the file holds is a broken invariant. Which of the two a
// crash leaves cannot be told apart then, so the model has no step at which it would choose.
func (c *modelCopy) Become() (renamed bool, err error) {
	if err := c.of.step(ModelBeforeCopy); err != nil {
		return false, err
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.closed {
		return false, ErrFileClosed
	}
	actors.Must(!c.of.writing && len(c.open) == 0, "the model was replaced in the middle of something")
	was, is := c.of.last(), c.last()
	actors.Must(bytes.Equal(was.image(), is.image()), "a copy with other records than the file:\n%s\nthe file:\n%s",
		is.image(), was.image())
	c.of.durable, c.of.unsynced, c.of.highest = is, nil, is.bytes
	return true, nil
}

// Scratch implements File.
func (f *ModelFile) Scratch() (Scratch, error) { return &modelScratch{}, nil }

// modelScratch is Scratch in memory.
type modelScratch struct {
	content []byte
	closed  bool
}

// Write implements Scratch.
func (s *modelScratch) Write(b []byte) (int, error) {
	s.content = append(s.content, b...)
	return len(b), nil
}

// ReadAt implements Scratch.
func (s *modelScratch) ReadAt(b []byte, offset int64) (int, error) {
	actors.Must(!s.closed, "a scratch file was read after it was closed")
	return bytes.NewReader(s.content).ReadAt(b, offset)
}

// Flush implements Scratch.
func (s *modelScratch) Flush() error { return nil }

// Close implements Scratch.
func (s *modelScratch) Close() error {
	s.closed = true
	return nil
}

var (
	_ io.ReaderAt = (*modelScratch)(nil)
	_ FileCopy    = (*modelCopy)(nil)
)
