/**
 * Imitates `nft -f` for one table family at a time, in memory: accepts the statements that
 * kube-relay writes, all of a text or none, and refuses the same as the kernel.
 *
 * @module
 */

/** A table as it stands. */
export interface FakeNftTable {
  /** Rules by chain. */
  readonly chains: Map<string, string[]>;
  /** Hooks by base chain. */
  readonly hooks: Map<string, string>;
  /** Values by key, by set or map; of sets the empty text. */
  readonly elements: Map<string, Map<string, string>>;
  /** Names of maps. */
  readonly maps: Set<string>;
  /** Types and flags of sets and maps, a part each. */
  readonly declarations: Map<string, readonly string[]>;
}

/** A program, and the tables that it has written. */
export class FakeNft {
  #tables = new Map<string, FakeNftTable>();
  /** Numbers by table and chain, e.g. `ip kube-relay services`; each is given once. */
  readonly handles = new Map<string, number>();
  #lastHandle = 0;

  /** A table by family and name, e.g. `ip kube-relay`. */
  table(name: string): FakeNftTable {
    const table = this.#tables.get(name);
    if (table === undefined) throw new Error(`No such file or directory: table ${name}`);
    return table;
  }

  /** The names of all tables. */
  get tables(): readonly string[] {
    return [...this.#tables.keys()];
  }

  /** Takes a text, or throws with the line that was refused and changes nothing. */
  run(text: string): void {
    const before = structuredClone(this.#tables);
    try {
      for (const { line, words } of statements(text)) {
        try {
          this.#statement(words);
        } catch (cause) {
          const reason = cause instanceof Error ? cause.message : cause;
          throw new Error(`/dev/stdin:${line}: Error: ${reason}: ${words}`, { cause });
        }
      }
      this.#check();
    } catch (error) {
      this.#tables = before;
      throw error;
    }
  }

  #statement(text: string): void {
    const match = /^(add|delete|flush) (table|chain|rule|set|map|element) (ip6? \S+)(?: (.*))?$/s
      .exec(text);
    const [, verb, kind, table, rest = ""] = match ?? [];
    if (verb === undefined || table === undefined) throw new Error("syntax error");
    if (kind === "table") return this.#table(verb, table);
    const objects = this.table(table);
    const [, name = "", body = ""] = /^(\S+)(?: (.*))?$/s.exec(rest) ?? [];
    switch (`${verb} ${kind}`) {
      case "add chain":
        if (body !== "") this.#hook(objects, name, body);
        if (!objects.chains.has(name)) {
          objects.chains.set(name, []);
          this.handles.set(`${table} ${name}`, ++this.#lastHandle);
        }
        return;
      case "flush chain":
        objects.chains.set(name, need(objects.chains, name) && []);
        return;
      case "delete chain":
        if (need(objects.chains, name).length > 0) throw new Error("Device or resource busy");
        objects.chains.delete(name);
        objects.hooks.delete(name);
        return;
      case "add rule":
        need(objects.chains, name).push(body);
        return;
      case "add map":
      case "add set":
        if (kind === "map") objects.maps.add(name);
        if (objects.elements.has(name)) {
          if (`${objects.declarations.get(name)}` !== `${partsOf(body)}`) {
            throw new Error("File exists");
          }
          return;
        }
        objects.elements.set(name, new Map());
        objects.declarations.set(name, partsOf(body));
        return;
      case "delete map":
      case "delete set":
        need(objects.elements, name);
        objects.elements.delete(name);
        objects.declarations.delete(name);
        objects.maps.delete(name);
        return;
      case "flush map":
      case "flush set":
        return need(objects.elements, name).clear();
      case "add element":
      case "delete element":
        return this.#elements(verb, need(objects.elements, name), body);
    }
    throw new Error("syntax error");
  }

  /** Type, hook and priority of a chain cannot be changed. */
  #hook({ chains, hooks }: FakeNftTable, name: string, body: string): void {
    const place = (text: string | undefined) => text?.replace(/ ; policy .*/, "");
    if (chains.has(name) && place(hooks.get(name)) !== place(body)) throw new Error("File exists");
    hooks.set(name, body);
  }

  #table(verb: string, name: string): void {
    if (verb === "delete") {
      this.table(name);
      this.#tables.delete(name);
    } else if (!this.#tables.has(name)) {
      const table = {
        chains: new Map(),
        hooks: new Map(),
        elements: new Map(),
        maps: new Set<string>(),
        declarations: new Map(),
      };
      this.#tables.set(name, table);
    }
  }

  #elements(verb: string, elements: Map<string, string>, body: string): void {
    const list = /^\{\s*(.*?)\s*\}$/s.exec(body)?.[1];
    if (list === undefined) throw new Error("syntax error");
    for (const item of list.split(/,\s*/)) {
      const [key = "", value = ""] = item.split(" : ");
      const old = elements.get(key);
      if (verb === "delete") {
        if (old === undefined) throw new Error(`No such file or directory (${key})`);
        elements.delete(key);
      } else {
        if (old !== undefined && old !== value) throw new Error(`File exists (${key})`);
        elements.set(key, value);
      }
    }
  }

  /** Whatever is named has to be there. */
  #check(): void {
    for (const [table, { chains, elements }] of this.#tables) {
      const texts = [...chains.values()].flat();
      const values = [...elements.values()].flatMap((map) => [...map.values()]);
      for (const text of [...texts, ...values]) {
        const [, target] = /(?:^| )(?:goto|jump) (\S+)$/.exec(text) ?? [];
        if (target !== undefined && !chains.has(target)) {
          throw new Error(`No such file or directory: chain ${target} of ${table}`);
        }
        for (const [, name = ""] of text.matchAll(/@(\S+)/g)) {
          if (!elements.has(name)) {
            throw new Error(`No such file or directory: ${name} of ${table}`);
          }
        }
      }
    }
  }
}

/** The statements of a text; one with braces may go over several lines. */
function* statements(text: string): Generator<{ readonly line: number; readonly words: string }> {
  const pending: string[] = [];
  let [start, open] = [0, 0];
  for (const [index, line] of text.split("\n").entries()) {
    if (pending.length === 0) start = index + 1;
    pending.push(line);
    open += count(line, "{") - count(line, "}");
    if (open > 0) continue;
    const words = pending.splice(0).join("\n");
    open = 0;
    if (words.trim() !== "" && !words.startsWith("#")) yield { line: start, words };
  }
  if (pending.length > 0) {
    throw new Error(`/dev/stdin:${start}: Error: syntax error, unexpected end`);
  }
}

/** The parts of a declaration. */
function partsOf(body: string): readonly string[] {
  return body.replace(/^\{ (.*) ; \}$/, "$1").split(" ; ");
}

function count(text: string, character: string): number {
  return text.split(character).length - 1;
}

function need<T>(map: ReadonlyMap<string, T>, name: string): T {
  const value = map.get(name);
  if (value === undefined) throw new Error(`No such file or directory (${name})`);
  return value;
}
