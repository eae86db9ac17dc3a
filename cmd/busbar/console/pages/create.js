// Make a queue, a topic or a subscription.

import { atom } from './api.js';
import { View, announce, field, h, problem } from './dom.js';
import { description, input, part, read, settings } from './properties.js';
import { link } from './tree.js';

/** What a new entity has if nobody says otherwise. */
const defaults = { MaxDeliveryCount: '10', LockDuration: 'PT1M', DefaultMessageTimeToLive: 'P10675199DT2H48M5.4775807S',
  DuplicateDetectionHistoryTimeWindow: 'PT10M', AutoDeleteOnIdle: 'P10675199DT2H48M5.4775807S', DeadLetteringOnFilterEvaluationExceptions: 'true' };

class Create extends View {
  open() {
    if (!['queue', 'topic', 'subscription'].includes(this.kind)) {
      this.kind = 'queue';
    }
    this.name = h('input', { spellcheck: 'false', autocomplete: 'off', required: true });
    this.inputs = new Map();
    this.error = h('div', {});
    const make = (s) => {
      const i = input(s, defaults[s.name]);
      this.inputs.set(s.name, i);
      return i;
    };
    const mine = settings.filter((s) => s.kinds.includes(this.kind) && s.name !== 'Status');
    this.show(h('h1', {}, this.kind === 'subscription' ? `New subscription of ${this.topic}` : `New ${this.kind}`),
      h('form', { class: 'compose', novalidate: true, onsubmit: (e) => this.make(e) }, field('Name', this.name),
        part('Settings', mine.filter((s) => s.more === ''), make), part('Fixed once it is made', mine.filter((s) => s.more === 'new'), make),
        part('Options of Busbar', mine.filter((s) => s.more === 'own'), make), this.error,
        h('div', { class: 'actions' }, h('button', { type: 'submit', class: 'main' }, 'Create'))));
    this.name.focus();
  }

  async make(e) {
    e.preventDefault();
    this.error.replaceChildren();
    try {
      const name = this.name.value.trim();
      if (name === '') {
        throw new Error(`Name the ${this.kind}.`);
      }
      const values = {};
      for (const s of settings.filter((one) => this.inputs.has(one.name))) {
        values[s.name] = read(s, this.inputs.get(s.name));
        if (s.more === 'own' && (values[s.name] === 'false' || values[s.name] === 'PT0S')) {
          delete values[s.name];
        }
      }
      const path = this.kind === 'subscription' ? `${this.topic}/Subscriptions/${name}` : name;
      await atom('PUT', path, description(this.kind, values));
      announce(`${path} is created.`);
      dispatchEvent(new CustomEvent('entities-changed'));
      location.hash = link(path);
    } catch (error) {
      this.error.replaceChildren(problem(error.status === 409 ? new Error(`There is an entity of the name ${this.name.value.trim()} already.`) : error));
    }
  }
}

customElements.define('bb-create', Create);
