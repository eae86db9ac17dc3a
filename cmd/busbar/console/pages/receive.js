// Receive a message as a client does: lock the next one, then complete it or give it back. A lock runs out by itself.

import { parse, pathOf, raw } from './api.js';
import { View, announce, button, field, h, moment, note, problem, select } from './dom.js';
import { pretty } from './message.js';

class Receive extends View {
  open() {
    this.sub = select([['', 'messages'], ['/$DeadLetterQueue', 'dead letters']], '', {});
    this.body = h('div', {});
    this.show(h('div', { class: 'bar' }, field('From', this.sub), button('Lock the next one', () => this.take('POST'), { class: 'main' }),
      button('Receive and delete', () => this.take('DELETE'), { class: 'danger' })), this.body);
  }

  async take(method) {
    try {
      const got = await raw(method, `/${pathOf(this.path + this.sub.value)}/messages/head?timeout=1`);
      if (got.status === 204) {
        this.body.replaceChildren(note('There is no message now.'));
        return;
      }
      this.draw(got, method === 'POST');
    } catch (error) {
      this.fail(error);
    }
  }

  fail(error) {
    if (error.name !== 'AbortError') {
      this.body.replaceChildren(problem(error));
    }
  }

  draw(got, locked) {
    const broker = parse(got.headers.get('BrokerProperties') ?? '{}');
    const at = locked ? new URL(got.headers.get('Location'), location.href).pathname : null;
    const own = [...got.headers].filter(([name]) => !/^(brokerproperties|location|content-|date|server|cache-|cross-|referrer|x-|vary|transfer|permissions)/i.test(name));
    const facts = [...Object.entries(broker).filter(([name]) => name !== 'LockToken'), ...own];
    const settle = (method, said) => async () => {
      try {
        await raw(method, at); // not broken off when somebody leaves the page
        announce(said);
        this.body.replaceChildren(note(said));
      } catch (error) {
        this.fail(error);
      }
    };
    this.body.replaceChildren(h('div', { class: 'title' }, h('h2', {}, `Message ${broker.SequenceNumber}`), h('span', { class: 'space' }),
      locked ? [button('Complete', settle('DELETE', 'The message is completed.'), { class: 'main' }), button('Give back', settle('PUT', 'The message is given back.'))] : h('span', { class: 'mark' }, 'deleted')),
    h('dl', { class: 'facts' }, facts.map(([name, value]) => h('div', {}, h('dt', {}, name), h('dd', {}, /Utc$/.test(name) ? moment(value) : String(value))))),
    h('pre', { tabindex: 0, 'aria-label': 'Body' }, pretty(got.text) ?? got.text));
  }
}

customElements.define('bb-receive', Receive);
