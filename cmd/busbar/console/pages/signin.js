// Sign in with the name and the key of a policy, with a connection string that has both, or at an identity provider.

import { placeOf, session, who } from './api.js';
import { View, button, field, h, problem } from './dom.js';

/** parts takes a connection string apart; null if the text is none. */
export function parts(text) {
  if (!/SharedAccessKey(Name)?=/i.test(text)) {
    return null;
  }
  const found = {};
  for (const part of text.split(';')) {
    const at = part.indexOf('=');
    if (at > 0) {
      found[part.slice(0, at).trim().toLowerCase()] = part.slice(at + 1).trim();
    }
  }
  return { policy: found.sharedaccesskeyname ?? '', key: found.sharedaccesskey ?? '', entity: found.entitypath ?? '' };
}

class SignIn extends View {
  open() {
    this.policy = h('input', { name: 'policy', autocomplete: 'username', spellcheck: 'false', required: true });
    this.key = h('input', { name: 'key', type: 'password', autocomplete: 'current-password', required: true });
    this.entity = h('input', { name: 'entity', spellcheck: 'false', autocomplete: 'off' });
    for (const input of [this.policy, this.key]) {
      input.addEventListener('paste', (e) => this.pasted(e));
    }
    this.error = h('div', {});
    this.elsewhere = h('div', {}); // errors of providers
    this.go = h('button', { type: 'submit', class: 'main' }, 'Sign in');
    const form = h('form', { novalidate: true, onsubmit: (e) => this.send(e) },
      field('Policy', this.policy, 'A connection string pasted here fills all fields.'), field('Key', this.key),
      field('Queue or topic', this.entity, 'Only for a policy of one entity.'), this.error,
      h('div', { class: 'actions' }, this.go));
    const dev = session.development ? h('section', { class: 'dev' }, h('h2', {}, 'Development node'),
      h('p', {}, 'Its key is known to everybody, so this machine needs none.'),
      button('Sign in with the development key', () => this.begin({ development: true }), { class: 'main' })) : null;
    const others = session.providers?.length ? h('section', { class: 'others' }, h('h2', {}, 'Identity provider'), session.providers.map((p) =>
      button(`Sign in at ${p.label}`, () => this.away(p.issuer), { class: 'main' })), this.elsewhere) : null;
    this.show(h('main', { class: 'signin' }, h('h1', {}, h('img', { src: '/$console/pages/icon.svg', alt: '' }), 'Busbar'),
      this.why ? h('p', { class: 'note', role: 'status' }, this.why) : null,
      this.leave ? h('p', { class: 'note' }, h('a', { href: this.leave }, 'Sign out at the identity provider, too')) : null, dev, others,
      h('section', {}, h('h2', {}, 'Access policy'), form), h('p', { class: 'foot' }, `Version ${session.version ?? ''}`)));
    ((dev ?? others)?.querySelector('button') ?? this.policy).focus();
  }

  pasted(e) {
    const found = parts(e.clipboardData.getData('text'));
    if (found) {
      e.preventDefault();
      this.policy.value = found.policy;
      this.key.value = found.key;
      this.entity.value = found.entity;
      this.go.focus();
    }
  }

  send(e) {
    e.preventDefault();
    const whole = parts(this.policy.value) ?? parts(this.key.value);
    this.begin(whole ?? { policy: this.policy.value, key: this.key.value, entity: this.entity.value });
  }

  /** away goes to an identity provider, which sends the browser back. */
  async away(issuer) {
    this.elsewhere.replaceChildren();
    try {
      location.assign(await placeOf(issuer));
    } catch (error) {
      this.elsewhere.replaceChildren(problem(error));
    }
  }

  async begin(signIn) {
    this.error.replaceChildren();
    try {
      await who('POST', signIn);
      this.key.value = '';
      this.dispatchEvent(new CustomEvent('signed-in'));
    } catch (error) {
      this.error.replaceChildren(problem(error));
    }
  }
}

customElements.define('bb-signin', SignIn);
