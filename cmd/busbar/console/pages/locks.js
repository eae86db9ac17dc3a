// Who holds which message, and until when.

import { act, view } from './api.js';
import { View, button, h, moment, note, problem, select, field, table } from './dom.js';
import { work } from './dialog.js';

class Locks extends View {
  open() {
    this.body = h('div', {});
    this.sub = select([['', 'messages'], ['/$DeadLetterQueue', 'dead letters']], '', { onchange: () => this.load() });
    this.show(h('div', { class: 'bar' }, field('Of', this.sub), button('Refresh', () => this.load())), this.body);
    this.all = [];
    this.load();
  }

  get where() {
    return this.path + this.sub.value;
  }

  async load(cursor) {
    try {
      const got = await view(this.where, 'locks', { max: 100, cursor }, this.latest());
      this.all = cursor ? [...this.all, ...got.locks] : got.locks;
      this.draw(got.next);
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  draw(next) {
    if (this.all.length === 0) {
      this.body.replaceChildren(note('Nobody holds a message.'));
      return;
    }
    const columns = [['Number', 'number'], 'Holder', 'Link', 'Address', 'Taken', 'Until', 'Session', ['Acts', 'acts']];
    this.body.replaceChildren(table(`Locks of ${this.where}`, columns, this.all.map((l) => this.line(l))), next ? button('Show more', () => this.load(next)) : '');
  }

  line(l) {
    const acts = l.sessionId === undefined ? [button('Release…', () => this.release(`the lock of message ${l.sequenceNumber}`, { number: l.sequenceNumber }), { 'aria-label': `Release message ${l.sequenceNumber}` }),
      button('All of holder…', () => this.release(`all locks of ${l.client || l.takenBy}`, { holder: l.takenBy }), { 'aria-label': `Release all locks of the holder of message ${l.sequenceNumber}` })] :
      [button('Release session…', () => this.release(`session ${l.sessionId}`, { session: [l.sessionId] }, 'release-session'), { 'aria-label': `Release session ${l.sessionId}` })];
    return h('tr', {}, h('th', { scope: 'row', class: 'number' }, String(l.sequenceNumber)), h('td', { class: 'clip' }, l.client || h('span', { class: 'muted' }, `of another node, ${l.takenBy}`)),
      h('td', { class: 'clip' }, l.link ?? ''), h('td', {}, l.remote ?? ''), h('td', {}, moment(l.takenAt)), h('td', {}, moment(l.lockedUntil)),
      h('td', { class: 'clip' }, l.sessionId === undefined ? '' : `${l.sessionId}, ${l.sessionMode}`), h('td', { class: 'acts' }, acts));
  }

  async release(what, values, name = 'release-locks') {
    const done = await work({ title: `Release ${what}`, verb: 'Release', danger: true,
      text: 'It ends as if it had run out: the delivery counts, and what the holder says of the message is refused.',
      run: async () => {
        const got = await act(this.where, name, values);
        return `${got.released} released.`;
      } });
    if (done) {
      this.load();
    }
  }
}

customElements.define('bb-locks', Locks);
