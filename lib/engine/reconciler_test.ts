import { assertEquals, assertRejects } from "@std/assert";
import fc from "fast-check";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import {
  type Batch,
  type KernelObject,
  type ObjectName,
  type Objects,
  Reconciler,
  Refusal,
  type Target,
  Unreadable,
} from "./reconciler.ts";

/** A group: a number of objects of its own, and a word that it shares with others. */
interface Group {
  readonly name: string;
  readonly values: readonly number[];
  readonly word?: string;
  readonly wording?: string;
}

const ROOT: KernelObject = { kind: "root", name: "all", text: "version 1" };

/** A data plane in memory, and what is wanted of it. */
class Plane implements Target<string, Group, string> {
  readonly root: KernelObject | undefined;
  readonly wanted = new Map<string, Group>();
  readonly changed = new Set<string>();
  /** By kind and name. */
  readonly there = new Map<string, string>();
  readonly leftOut = new Map<string, string>();
  reads = 0;
  /** What another program does before a reading. */
  onRead = (): void => {};
  writes = 0;
  /** Objects that were rendered: what a sync costs. */
  rendered = 0;
  /** Names that are refused, also under a new root if `anew`. */
  refuses = new Set<string>();
  refusesAnew = true;
  settled = 0;
  /** What `tidy` was asked, and what it answers. */
  readonly tidied: boolean[] = [];
  staysKnown = true;
  failNext: { readonly carriedOut: boolean } | undefined;
  /** @default {objects are compared} */
  changesOf?: NonNullable<Target<string, Group, string>["changesOf"]>;
  /** Listings to come that lack an object. */
  cut = 0;
  isUnreadable = false;

  constructor({ rooted = false } = {}) {
    this.root = rooted ? ROOT : undefined;
  }

  /** Objects that were written. */
  written = 0;

  set(group: Group): void {
    this.wanted.set(group.name, group);
    this.leftOut.delete(group.name);
    this.changed.add(group.name);
  }

  delete(name: string): void {
    this.wanted.delete(name);
    this.changed.add(name);
  }

  keys(): Iterable<string> {
    return this.wanted.keys().filter((name) => !this.leftOut.has(name));
  }

  dirty(): Iterable<string> {
    return this.changed;
  }

  settle(): void {
    this.settled++;
    this.changed.clear();
  }

  arrange(key: string): Group | undefined {
    return this.leftOut.has(key) ? undefined : this.wanted.get(key);
  }

  *objectsOf({ name, values, word, wording = "text" }: Group): Generator<KernelObject> {
    for (const [index, value] of values.entries()) {
      this.rendered++;
      yield { kind: "value", name: `${name} ${index}`, text: `${value}` };
    }
    if (word !== undefined) {
      yield { kind: "word", name: word, text: `${wording} of ${word}`, isShared: true };
    }
  }

  ownerOf({ name }: Group): string {
    return name;
  }

  isUnused({ kind, name }: ObjectName): boolean {
    return kind === "word" && name.startsWith("idle");
  }

  read(): Promise<Objects | undefined> {
    this.reads++;
    this.onRead();
    if (this.isUnreadable) return Promise.reject(new Unreadable(new Error("a crash")));
    if (this.there.size === 0) return Promise.resolve(undefined);
    const objects = new Map<string, Map<string, string>>();
    for (const [id, text] of [...this.there].slice(0, this.cut-- > 0 ? -1 : undefined)) {
      const [kind = "", ...name] = id.split(" ");
      objects.getOrInsertComputed(kind, () => new Map()).set(name.join(" "), text);
    }
    return Promise.resolve(objects);
  }

  tidy({ all }: { readonly all: boolean }): Promise<boolean> {
    this.tidied.push(all);
    return Promise.resolve(this.staysKnown);
  }

  begin(): Batch<string> {
    const changes: [string, string | undefined, string | undefined, string | undefined][] = [];
    return {
      add: ({ kind, name }, before, after, owner) => {
        changes.push([`${kind} ${name}`, before, after, owner]);
      },
      commit: () => {
        if (changes.length === 0) return Promise.resolve();
        this.writes++;
        const isNew = changes.some(([id, before]) => id === "root all" && before !== undefined);
        const refused = changes.filter(([id, , after]) =>
          after !== undefined && this.refuses.has(id) && (this.refusesAnew || !isNew)
        );
        if (refused.length > 0) {
          const owners = refused.flatMap(([id, , , owner]) =>
            owner ? [[owner, `${id}: no`] as const] : []
          );
          return Promise.reject(new Refusal(new Map(owners), new Error("refused")));
        }
        const failure = this.failNext;
        this.failNext = undefined;
        if (failure?.carriedOut !== false) {
          if (isNew) this.there.clear();
          this.written += changes.length;
          for (const [id, before, after] of changes) {
            // What is known must be right, or a change would be lost.
            if (id !== "root all") assertEquals(this.there.get(id), before, id);
            if (after === undefined) this.there.delete(id);
            else this.there.set(id, after);
          }
        }
        return failure ? Promise.reject(new Error("timeout")) : Promise.resolve();
      },
    };
  }

  leaveOut(reasons: ReadonlyMap<string, string>): boolean {
    for (const [name, reason] of reasons) {
      this.leftOut.set(name, reason);
      this.changed.add(name);
    }
    return reasons.size > 0;
  }

  /** What should be there. */
  get expected(): Record<string, string> {
    const all = this.root ? [this.root] : [];
    for (const key of this.keys()) all.push(...this.objectsOf(this.wanted.get(key)!));
    return Object.fromEntries(all.map(({ kind, name, text }) => [`${kind} ${name}`, text]));
  }

  get found(): Record<string, string> {
    return Object.fromEntries(this.there);
  }
}

function engineOf(plane: Plane): Reconciler<string, Group, string> {
  return new Reconciler({ clock: new FakeClock() }, plane);
}

type Step = (plane: Plane, engine: { now: Reconciler<string, Group, string> }) => Promise<void>;

const group = fc.record({
  name: fc.integer({ min: 0, max: 8 }).map((number) => `group-${number}`),
  values: fc.array(fc.nat(3), { maxLength: 4 }),
  word: fc.option(fc.constantFrom("red", "green"), { nil: undefined }),
});
const step: fc.Arbitrary<Step> = fc.oneof(
  group.map((group): Step => async (plane) => await Promise.resolve(plane.set(group as Group))),
  group.map(({ name }): Step => async (plane) => await Promise.resolve(plane.delete(name))),
  fc.constant<Step>((_, engine) => engine.now.sync()),
  fc.boolean().map((carriedOut): Step => async (plane, engine) => {
    plane.failNext = { carriedOut };
    await engine.now.sync().catch(() => {});
    plane.failNext = undefined;
  }),
  fc.nat(20).map((place): Step => async (plane, engine) => {
    await engine.now.sync();
    const id = [...plane.there.keys()][place];
    if (id === undefined) return;
    if (place % 2 === 0) plane.there.delete(id);
    else plane.there.set(id, "altered");
    plane.there.set("value foreign", "1");
    plane.cut = place % 2;
    const names = (await engine.now.verify()).map(({ kind, name }) => `${kind} ${name}`);
    assertEquals(new Set(names), new Set(id === "root all" ? [id] : [id, "value foreign"]));
  }),
  fc.constant<Step>(async (plane, engine) => {
    engine.now = engineOf(plane);
    plane.changed.clear();
    await engine.now.sync();
  }),
);

for (const rooted of [false, true]) {
  Deno.test(`the engine reaches the wanted state after any history, ${rooted ? "with" : "without"} a root`, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30, size: "max" }), async (steps) => {
        const plane = new Plane({ rooted });
        const engine = { now: engineOf(plane) };
        for (const step of steps) await step(plane, engine);
        await engine.now.sync();
        assertEquals(plane.found, plane.expected);
        const { reads, writes } = plane;
        await engine.now.sync();
        assertEquals(
          [plane.reads, plane.writes],
          [reads, writes],
          "a known state is not read again",
        );
        assertEquals(await engine.now.compare(), []);
      }),
      { numRuns: 300 },
    );
  });
}

function fullPlane(groups: number, options?: { readonly rooted: boolean }): Plane {
  const plane = new Plane(options);
  for (let number = 0; number < groups; number++) {
    plane.set({ name: `group-${number}`, values: [1, 2], word: "red" });
  }
  return plane;
}

Deno.test("a change costs as much among 10 groups as among 1,000", async () => {
  for (const groups of [10, 1_000]) {
    const plane = fullPlane(groups);
    const engine = engineOf(plane);
    await engine.sync();
    const { reads, writes, written } = plane;
    plane.rendered = 0;
    plane.set({ name: "group-7", values: [1, 3], word: "red" });
    await engine.sync();
    assertEquals([plane.reads, plane.writes, plane.rendered], [reads, writes + 1, 4]);
    assertEquals(plane.written, written + 1);
    assertEquals(plane.there.get("value group-7 1"), "3");
  }
});

Deno.test("a group that says what changed in it costs that, however large it is", async () => {
  const plane = new Plane();
  const engine = engineOf(plane);
  const values = Array.from({ length: 10_000 }, (_, index) => index);
  plane.set({ name: "large", values });
  await engine.sync();
  plane.set({ name: "large", values: [...values, 7] });
  const rendered = plane.rendered;
  plane.changesOf = () => [{ kind: "value", name: "large 10000", before: undefined, after: "7" }];
  await engine.sync();
  assertEquals(plane.rendered, rendered);
  assertEquals(plane.found, plane.expected);
  assertEquals(await engine.compare(), []);
});

Deno.test("a shared object passes to another group in one sync, with another text", async () => {
  for (const names of [["group-0", "group-1"], ["group-1", "group-0"]]) {
    const plane = new Plane();
    const engine = engineOf(plane);
    plane.set({ name: "group-0", values: [], word: "red" });
    await engine.sync();
    for (const name of names) {
      if (name === "group-0") plane.delete(name);
      else plane.set({ name, values: [], word: "red", wording: "new text" });
    }
    await engine.sync();
    assertEquals(plane.found, { "word red": "new text of red" });
    assertEquals(await engine.verify(), []);
    plane.delete("group-1");
    await engine.sync();
    assertEquals(plane.found, {});
  }
});

Deno.test("a refused group is left out, and delays no other", async () => {
  for (const rooted of [false, true]) {
    const plane = fullPlane(3, { rooted });
    const engine = engineOf(plane);
    await engine.sync();
    plane.set({ name: "group-1", values: [5, 6, 7] });
    plane.set({ name: "group-2", values: [8] });
    plane.refuses.add("value group-1 2");
    await engine.sync();
    assertEquals([...plane.leftOut], [["group-1", "value group-1 2: no"]]);
    assertEquals(plane.found, plane.expected);
    // In a known state, after a reading, and under a new root.
    assertEquals(engine.failures, rooted ? 3 : 2);
    plane.refuses.clear();
    plane.set({ name: "group-1", values: [5] });
    await engine.sync();
    assertEquals(plane.found, plane.expected);
  }
});

Deno.test("the engine gives up if something else is refused each time", async () => {
  const plane = fullPlane(20);
  for (let number = 0; number < 20; number++) plane.refuses.add(`value group-${number} 0`);
  const { leaveOut } = plane;
  plane.leaveOut = (reasons) => leaveOut.call(plane, new Map([...reasons].slice(0, 1)));
  await assertRejects(() => engineOf(plane).sync(), Error, "refused");
  assertEquals([plane.writes, plane.reads, plane.leftOut.size], [16, 1, 15]);
});

Deno.test("everything is read again after a refusal that left a part applied", async () => {
  const plane = fullPlane(3);
  const { begin } = plane;
  plane.begin = () => {
    const batch = begin.call(plane);
    const commit = () =>
      batch.commit().catch((error) => {
        if (!(error instanceof Refusal)) throw error;
        plane.there.set("value group-0 0", "1");
        throw new Refusal(error.reasons, error, { isPartial: true });
      });
    return { ...batch, commit };
  };
  plane.refuses.add("value group-1 1");
  await engineOf(plane).sync();
  assertEquals([plane.reads, [...plane.leftOut.keys()]], [2, ["group-1"]]);
  assertEquals(plane.found, plane.expected);
});

Deno.test("a text that means the same as the wanted one is no difference", async () => {
  const plane: Plane & Pick<Target<string, Group, string>, "isSame"> = fullPlane(2);
  const engine = engineOf(plane);
  await engine.sync();
  plane.isSame = (_, found, wanted) => Number(found) === Number(wanted);
  plane.there.set("value group-0 0", "0x1");
  assertEquals(await engine.verify(), []);
  plane.there.set("value group-0 0", "0x2");
  assertEquals((await engine.verify()).map(({ before, after }) => [before, after]), [["0x2", "1"]]);
});

Deno.test("a root that cannot be read is replaced at the third time", async () => {
  for (const rooted of [false, true]) {
    const plane = fullPlane(2, { rooted });
    const engine = engineOf(plane);
    await engine.sync();
    plane.isUnreadable = true;
    plane.delete("group-0");
    engine.forget();
    for (let time = 0; time < 2; time++) await assertRejects(() => engine.sync(), Error, "a crash");
    if (!rooted) await assertRejects(() => engine.sync(), Error, "a crash");
    else {
      await engine.sync();
      assertEquals(plane.found, plane.expected);
    }
  }
});

Deno.test("a comparison of some objects reads once if only others differ, each time in another way", async () => {
  const plane = fullPlane(2);
  const engine = engineOf(plane);
  await engine.sync();
  plane.reads = 0;
  plane.onRead = () => plane.there.set("value group-1 0", `at reading ${plane.reads}`);
  const compareGroup = (name: string) =>
    engine.compareSelected((changes) => changes.filter(({ owner }) => owner === name));
  assertEquals([await compareGroup("group-0"), plane.reads], [[], 1]);
  plane.there.delete("value group-0 1");
  plane.reads = 0;
  const found = (await compareGroup("group-0")).map(({ name, after }) => [name, after]);
  assertEquals([found, plane.reads], [[["group-0 1", "2"]], 2]);
});

Deno.test("what does no harm is no difference", async () => {
  const plane = fullPlane(1);
  const engine = engineOf(plane);
  await engine.sync();
  plane.there.set("word idle-1", "");
  assertEquals([await engine.compare(), await engine.verify()], [[], []]);
  plane.there.set("word foreign", "");
  assertEquals((await engine.compare()).map(({ name }) => name), ["foreign"]);
});

Deno.test("unused objects are removed when it suits after a sync, and all before and after a check", async () => {
  const plane = fullPlane(2);
  const engine = engineOf(plane);
  await engine.sync();
  assertEquals(plane.tidied.splice(0), [false]);
  await engine.verify();
  assertEquals(plane.tidied.splice(0), [true, true]);
  engine.forget();
  await engine.verify();
  assertEquals(plane.tidied.splice(0), [true], "what is there is known only afterwards");
  plane.staysKnown = false;
  await engine.sync();
  assertEquals(engine.isKnown, false);
});
