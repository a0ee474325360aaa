/**
 * The part of `@std/testing/bdd` that kube-relay's suites use: `describe`, `it` and the four hooks,
 * registered as one `Deno.test` for each outermost `describe` with a step for each case, so that
 * failures show where the case stands.
 *
 * @module
 */

type Action = () => void | Promise<void>;

interface Suite {
  readonly name: string;
  readonly entries: ({ name: string; run: Action } | Suite)[];
  readonly beforeAll: Action[];
  readonly afterAll: Action[];
  readonly beforeEach: Action[];
  readonly afterEach: Action[];
}

let current: Suite | undefined;

function createSuite(name: string): Suite {
  return { name, entries: [], beforeAll: [], afterAll: [], beforeEach: [], afterEach: [] };
}

async function runAll(actions: readonly Action[]): Promise<void> {
  for (const action of actions) await action();
}

async function runSuite(t: Deno.TestContext, suite: Suite, outer: readonly Suite[]): Promise<void> {
  const chain = [...outer, suite];
  await runAll(suite.beforeAll);
  try {
    for (const entry of suite.entries) {
      if ("entries" in entry) {
        await t.step(entry.name, (inner) => runSuite(inner, entry, chain));
        continue;
      }
      await t.step(entry.name, async () => {
        for (const each of chain) await runAll(each.beforeEach);
        try {
          await entry.run();
        } finally {
          for (const each of chain.toReversed()) await runAll(each.afterEach);
        }
      });
    }
  } finally {
    await runAll(suite.afterAll);
  }
}

/** Groups cases; may be nested. */
export function describe(name: string, body: () => void): void {
  const parent = current;
  const suite = createSuite(name);
  current = suite;
  try {
    body();
  } finally {
    current = parent;
  }
  if (parent) parent.entries.push(suite);
  else Deno.test(name, (t) => runSuite(t, suite, []));
}

/** One case. Outside a `describe` it is a test of its own. */
export function it(name: string, run: Action): void {
  if (current) current.entries.push({ name, run });
  else Deno.test(name, () => run());
}

function hook(kind: "beforeAll" | "afterAll" | "beforeEach" | "afterEach", action: Action): void {
  if (!current) throw new TypeError(`Cannot register ${kind}() outside describe()`);
  current[kind].push(action);
}

/** Runs once before the cases of the enclosing `describe`. */
export function beforeAll(action: Action): void {
  hook("beforeAll", action);
}
/** Runs once after the cases of the enclosing `describe`, also when one failed. */
export function afterAll(action: Action): void {
  hook("afterAll", action);
}
/** Runs before each case of the enclosing `describe` and of those inside it. */
export function beforeEach(action: Action): void {
  hook("beforeEach", action);
}
/** Runs after each case of the enclosing `describe` and of those inside it. */
export function afterEach(action: Action): void {
  hook("afterEach", action);
}
