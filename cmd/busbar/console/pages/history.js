// What was processed, accepted or released, as far as the entity keeps it.

import { view } from './api.js';
import { View, button, count, h, moment, note, problem, select, field, table } from './dom.js';

class History extends View {
  open() {
    this.body = h('div', {});
    this.kind = select([['processed', 'processed messages'], ['accepted', 'accepted messages'], ['releases', 'releases by operators']], 'processed', { onchange: () => this.load() });
    this.show(h('div', { class: 'bar' }, field('History of', this.kind), button('Refresh', () => this.load())), this.body);
    this.all = [];
    this.load();
  }

  async load(cursor) {
    try {
      const got = await view(this.path, 'history', { kind: this.kind.value, max: 100, cursor }, this.latest());
      this.all = cursor ? [...this.all, ...got.records] : got.records;
      this.draw(got);
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  draw({ kept, next }) {
    if (this.all.length === 0) {
      this.body.replaceChildren(note(kept ? 'There is no record.' : 'The entity does not keep this history. Turn it on in its settings.'));
      return;
    }
    const columns = ['At', ['Number', 'number'], 'Message id', 'Session', ['Deliveries', 'number'], 'End', 'By'];
    this.body.replaceChildren(table(`History of ${this.path}`, columns, this.all.map((r) => this.line(r))), next ? button('Show more', () => this.load(next)) : '');
  }

  line(r) {
    return h('tr', {}, h('th', { scope: 'row' }, moment(r.at)), h('td', { class: 'number' }, r.sequenceNumber ? String(r.sequenceNumber) : ''), h('td', { class: 'clip' }, r.messageId ?? ''),
      h('td', { class: 'clip' }, r.sessionId ?? ''), h('td', { class: 'number' }, count(r.deliveries ?? 0)), h('td', {}, r.end || 'still there', r.endedAt ? [' ', moment(r.endedAt)] : ''),
      h('td', { class: 'clip' }, r.operator ? `policy ${r.operator}` : r.by));
  }
}

customElements.define('bb-history', History);
