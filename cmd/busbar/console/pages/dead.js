// Dead letters: how many for each reason, and what may be done with all of a reason or with one.

import { act, atom, may, view } from './api.js';
import { button, count, field, h, many, moment, note, problem, select, table } from './dom.js';
import { pages, work } from './dialog.js';
import { Messages } from './messages.js';
import { valuesOf } from './properties.js';
import { compose, removeDead } from './send.js';

const most = 100_000; // dead letters that are looked at for the groups

class DeadLetters extends Messages {
  open() {
    this.sub = '$DeadLetterQueue';
    this.groups = h('div', {});
    super.open();
    this.prepend(this.groups);
    this.count();
  }

  get where() {
    return `${this.path}/${this.sub}`;
  }

  /** home is where dead letters are sent again to: a subscription takes nothing by itself, so its copies go to its topic. */
  get home() {
    return this.path.replace(/\/subscriptions\/.*$/i, '');
  }

  form() {
    this.reason = h('input', { size: 18, spellcheck: 'false' });
    this.which = select([['$DeadLetterQueue', 'dead letters'], ['$Transfer/$DeadLetterQueue', 'refused by a destination']], this.sub,
      { onchange: () => this.turn() });
    return this.controls([field('Queue', this.which)], []);
  }

  turn() {
    this.sub = this.which.value;
    this.load();
    this.count();
  }

  /** count goes through the dead letters, and shows the groups as they grow. */
  async count() {
    const groups = new Map();
    let next = '';
    let seen = 0;
    const signal = this.latest('count');
    try {
      do {
        const got = await view(this.where, 'reasons', { max: 1000, cursor: next }, signal);
        for (const g of got.reasons) {
          const was = groups.get(g.reason) ?? { reason: g.reason, count: 0, oldest: g.oldest, newest: g.newest, example: g.example };
          was.count += g.count;
          was.oldest = g.oldest < was.oldest ? g.oldest : was.oldest;
          was.newest = g.newest > was.newest ? g.newest : was.newest;
          groups.set(g.reason, was);
          seen += g.count;
        }
        next = got.next;
        this.drawGroups([...groups.values()], next !== '');
      } while (next && seen < most);
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.groups.replaceChildren(problem(error));
      }
    }
  }

  drawGroups(all, more) {
    const sum = all.reduce((n, g) => n + g.count, 0);
    if (sum === 0 && !more) {
      this.groups.replaceChildren(note('There is no dead letter.'));
      return;
    }
    all.sort((a, b) => b.count - a.count);
    const whole = { reason: null, count: sum };
    const lines = all.map((g) => h('tr', { 'data-reason': g.reason }, h('th', { scope: 'row' }, g.reason || '(no reason)'), h('td', { class: 'number' }, count(g.count)),
      h('td', {}, moment(g.oldest)), h('td', {}, moment(g.newest)), h('td', { class: 'clip' }, g.example), h('td', { class: 'acts' }, this.many(g))));
    this.groups.replaceChildren(table('Dead letters by reason', ['Reason', ['Messages', 'number'], 'Oldest', 'Newest', 'Last description', ['Acts', 'acts']], lines),
      h('div', { class: 'bar sum' }, h('strong', {}, `${many(sum, 'dead letter')}${more ? ' so far' : ''}`), h('span', { class: 'space' }), this.many(whole)));
  }

  /** many are the acts on all dead letters of a reason, or on all. */
  many(g) {
    if (!may('Manage', this.path)) {
      return [];
    }
    const of = g.reason === null ? 'all dead letters' : `dead letters with the reason ${g.reason || '(none)'}`;
    return [button('Redrive…', () => this.redrive(g, of), { 'aria-label': `Redrive ${of}` }),
      button('Move…', () => this.redrive(g, of, true), { 'aria-label': `Move ${of}` }),
      button('Purge…', () => this.purgeDead(g, of), { class: 'danger', 'aria-label': `Purge ${of}` })];
  }

  async redrive(g, of, elsewhere = false) {
    const to = elsewhere ? h('input', { spellcheck: 'false' }) : null;
    const done = await work({ title: `${elsewhere ? 'Move' : 'Redrive'} ${of}`, verb: elsewhere ? 'Move' : 'Redrive', total: g.count,
      fields: to ? [field('To queue or topic', to)] : [], text: `${many(g.count, 'dead letter')} of ${this.path} ${g.count === 1 ? 'is' : 'are'} sent ` +
      `${elsewhere ? 'to another entity' : 'again'}, each as a new message.`,
      run: async (tell, state) => {
        let until;
        const { done: moved, stopped } = await pages(async (cursor) => {
          const got = await act(this.where, 'redrive', { to: to?.value.trim(), ...this.chosen(g), until, max: 200, cursor });
          until = got.until;
          return { done: got.moved, next: got.next };
        }, tell, state);
        return `${many(moved, 'message')} sent on${stopped ? ', then stopped' : ''}.`;
      } });
    this.after(done);
  }

  async purgeDead(g, of) {
    const done = await work({ title: `Purge ${of}`, verb: 'Purge', danger: true, word: this.path, total: g.count,
      text: `${many(g.count, 'dead letter')} of ${this.path} ${g.count === 1 ? 'is' : 'are'} deleted for good.`,
      run: async (tell, state) => {
        let before;
        const { done: deleted, stopped } = await pages(async (cursor) => {
          const got = await act(this.where, 'purge', { ...this.chosen(g), before, cursor });
          before = got.before;
          return { done: got.deleted, next: got.next };
        }, tell, state);
        return `${many(deleted, 'message')} deleted${stopped ? ', then stopped' : ''}.`;
      } });
    this.after(done);
  }

  /** chosen is the reason as the API takes it: the empty one counts, too. */
  chosen(g) {
    return g.reason === null ? {} : { reason: [g.reason] };
  }

  after(done) {
    if (done) {
      this.detail.replaceChildren();
      this.load();
      this.count();
    }
  }

  columns() {
    const all = super.columns();
    all[1] = 'Reason';
    return all;
  }

  line(m) {
    const line = super.line(m);
    line.children[1].textContent = m.deadLetterReason ?? '';
    return line;
  }

  acts(m) {
    if (!may('Manage', this.path)) {
      return may('Send', this.home) ? [['Send a copy…', () => compose(this.home, m, 'Send a copy')]] : [];
    }
    return [['Redrive…', () => this.redriveOne(m)], ['Edit and resend…', () => this.edit(m)], ['Delete…', () => this.deleteOne(m), 'danger']];
  }

  async redriveOne(m) {
    this.after(await work({ title: `Redrive dead letter ${m.sequenceNumber}`, verb: 'Redrive', text: 'One dead letter is sent again as a new message.',
      run: async () => {
        await act(this.where, 'redrive', { number: m.sequenceNumber });
        return 'The message was sent again.';
      } }));
  }

  async edit(m) {
    this.after(await compose(this.home, m, `Edit and resend dead letter ${m.sequenceNumber}`, () => removeDead(this.where, m), (broker) => this.distinct(m, broker)));
  }

  /** distinct refuses a message that its queue would drop as a duplicate of what the dead letter was: that is deleted afterwards. */
  async distinct(m, broker) {
    if (m.messageId && broker.MessageId === m.messageId && valuesOf(await atom('GET', this.home)).RequiresDuplicateDetection === 'true') {
      throw new Error(`${this.home} detects duplicates and would drop a message with the id of the dead letter. Give it another message id.`);
    }
  }

  async deleteOne(m) {
    this.after(await work({ title: `Delete dead letter ${m.sequenceNumber}`, verb: 'Delete', danger: true, text: 'One dead letter is deleted for good.',
      run: async () => {
        await removeDead(this.where, m);
        return 'The dead letter is deleted.';
      } }));
  }
}

customElements.define('bb-dead', DeadLetters);
