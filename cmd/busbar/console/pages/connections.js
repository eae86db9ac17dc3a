// Who is connected: the AMQP connections of all nodes with their links, and how an operator closes them.

import { call } from './api.js';
import { View, button, count, field, h, many, moment, note, problem, table } from './dom.js';
import { work } from './dialog.js';

const most = 500;

class Connections extends View {
  open() {
    this.client = h('input', { size: 24, spellcheck: 'false', placeholder: 'container, product or address' });
    this.entities = h('input', { size: 24, spellcheck: 'false', value: this.path ?? '', readonly: Boolean(this.path) });
    this.body = h('div', {});
    const again = (e) => {
      e.preventDefault();
      this.load();
    };
    this.show(this.path ? null : h('div', { class: 'title' }, h('h1', {}, 'Connections')), h('form', { class: 'bar', onsubmit: again }, field('Client', this.client),
      this.path ? null : field('With a link to', this.entities), h('button', { type: 'submit', class: 'main' }, 'Show'), h('span', { class: 'space' }),
      button('Close all of these…', () => this.closeAll(), { class: 'danger' })), this.body);
    this.load();
  }

  get values() {
    return { client: this.client.value.trim(), entity: this.entities.value.trim() };
  }

  async load() {
    try {
      this.draw(await call('GET', '/api/connections', { ...this.values, max: most }, { signal: this.latest() }));
    } catch (error) {
      if (error.name !== 'AbortError') {
        this.body.replaceChildren(problem(error));
      }
    }
  }

  draw(got) {
    this.total = got.total;
    const all = got.connections ?? [];
    const silent = (got.problems ?? []).map((p) => h('p', { class: 'problem' }, `${p.node} did not answer: ${p.problem}`));
    if (all.length === 0) {
      this.body.replaceChildren(...silent, note('No such client is connected.'));
      return;
    }
    const columns = ['Client', 'From', 'Keys', ['In', 'number'], ['Out', 'number'], ['Unsettled', 'number'], 'Links', ['Acts', 'acts']];
    this.body.replaceChildren(...silent, table('Connections of all nodes', columns, all.map((c) => this.line(c))),
      h('div', { class: 'pager' }, `${many(got.total, 'connection')}${got.total > all.length ? `, the oldest ${count(all.length)} are shown` : ''}`));
  }

  line(c) {
    const mine = (c.links ?? []).filter((l) => !/\$(management|cbs)$/.test(l.entity));
    const links = mine.map((l) => h('div', {}, `${l.role} ${l.entity}`, h('small', {}, ` ${[l.mode, l.session ? `session ${l.session}` : '', l.role === 'receiver' ? `credit ${count(l.credit)}` : '',
      many(l.messages, 'message')].filter(Boolean).join(', ')}`)));
    const more = (c.openLinks ?? 0) - mine.length;
    const who = c.product || c.container;
    return h('tr', {}, h('th', { scope: 'row', class: 'clip' }, h('strong', {}, c.product || 'unknown'), ` ${c.version ?? ''}`, h('br'), h('small', { title: c.container }, c.container)),
      h('td', {}, c.remote, h('br'), h('small', {}, `${c.protocol}, node ${c.node ?? ''}`)), h('td', {}, (c.policies ?? []).join(', '), h('br'), h('small', {}, 'since ', moment(c.since))),
      h('td', { class: 'number' }, count(c.messagesIn)), h('td', { class: 'number' }, count(c.messagesOut)), h('td', { class: 'number' }, count(c.unsettled)),
      h('td', { class: 'links' }, links, more > 0 ? h('small', {}, `${mine.length > 0 ? 'and ' : ''}${many(more, 'link')} for management`) : ''),
      h('td', { class: 'acts' }, button('Close…', () => this.close({ id: c.id }, `the connection of ${who} at ${c.remote}`, 1), { class: 'danger', 'aria-label': `Close ${who} at ${c.remote}` })));
  }

  closeAll() {
    const { client, entity } = this.values;
    if (!client && !entity) {
      this.body.prepend(problem(new Error('Name a client or an entity first. The console closes the connections of everybody at no time.')));
      return;
    }
    if (client && entity) {
      this.body.prepend(problem(new Error('Name either a client or an entity to close connections of.')));
      return;
    }
    this.close(client ? { client } : { entity }, client ? `all connections of clients like ${client}` : `all connections with a link to ${entity}`, this.total ?? 0);
  }

  async close(values, what, n) {
    const done = await work({ title: `Close ${what}`, verb: 'Close', danger: true, text: `${many(n, 'connection')} ${n === 1 ? 'ends' : 'end'} in good order. The clients connect again by themselves; messages that they hold come back.`,
      run: async () => {
        const got = await call('POST', '/api/connections/close', values);
        return `${many((got.closed ?? []).length, 'connection')} closed.`;
      } });
    if (done) {
      this.load();
    }
  }
}

customElements.define('bb-connections', Connections);
