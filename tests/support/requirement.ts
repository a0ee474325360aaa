/**
 * The requirements of a test besides Deno: root, a tool, a built file. A test that lacks one is
 * skipped and prints the reason; with `REQUIRE_ALL=1`, as in CI, it fails.
 *
 * @module
 */

/** A need: the end of the sentence "needs …", and whether it is met. */
export type Requirement = readonly [what: string, met: boolean];

/**
 * Whether to skip a test (`Deno.test({ ignore })`). Throws an Error, which fails the test file,
 * when something is missing and `REQUIRE_ALL=1` is set.
 */
export function isMissing(suite: string, requirements: readonly Requirement[]): boolean {
  const missing = requirements.filter(([, met]) => !met).map(([what]) => what);
  if (missing.length === 0) return false;
  const reason = `${suite} needs ${missing.join(" and ")}`;
  if (Deno.env.get("REQUIRE_ALL") === "1") {
    throw new Error(`Cannot skip with REQUIRE_ALL=1: ${reason}`);
  }
  // deno-lint-ignore no-console -- a skip has to be seen in the test's output
  console.warn(`skipped: ${reason}`);
  return true;
}

type DeclareTest = (name: string, run: (t: Deno.TestContext) => void | Promise<void>) => void;

/** Returns what declares tests with these needs; see {@linkcode isMissing}. */
export function testNeeding(suite: string, requirements: readonly Requirement[]): DeclareTest {
  return testUnless(isMissing(suite, requirements));
}

/** Returns `Deno.test`, or what declares tests that are skipped. */
export function testUnless(isSkipped: boolean): DeclareTest {
  return isSkipped ? Deno.test.ignore : Deno.test;
}

/** The need of root. */
export const ROOT: Requirement = ["root", Deno.uid() === 0];

/** The need of a program on the PATH. */
export function program(name: string): Requirement {
  const folders = (Deno.env.get("PATH") ?? "").split(":");
  return [`the program '${name}'`, folders.some((folder) => isFile(`${folder}/${name}`))];
}

/** The need of a file, which `cure` makes. */
export function file(path: string, cure: string): Requirement {
  return [`${path} (made by ${cure})`, isFile(path)];
}

function isFile(path: string): boolean {
  try {
    return Deno.statSync(path).isFile;
  } catch {
    return false;
  }
}
