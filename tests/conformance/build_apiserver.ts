/**
 * Builds `tests/apiserver` into a cache outside the repository, once for each state of its sources.
 * A first build compiles the whole API machinery and takes minutes; later ones are a file look-up.
 *
 * @module
 */

const SOURCES = new URL("../apiserver/", import.meta.url);

/**
 * Path of the built program. Resolves to `undefined` when there is no Go to build it with; throws
 * with the compiler's words when the build fails.
 */
export async function buildApiserver(): Promise<string | undefined> {
  const goVersion = await versionOfGo();
  if (goVersion === undefined) return undefined;
  const folder = cacheFolder();
  const path = `${folder}/apiserver-${await hashOfSources(goVersion)}`;
  if (await exists(path)) return path;
  await Deno.mkdir(folder, { recursive: true });
  // deno-lint-ignore no-console -- else a test run seems to hang
  console.warn(`Building tests/apiserver into ${folder}; the first time takes minutes`);
  await build(path);
  return path;
}

function cacheFolder(): string {
  const cache = Deno.env.get("XDG_CACHE_HOME") || `${Deno.env.get("HOME") ?? "/tmp"}/.cache`;
  return `${cache}/kube-relay-tests`;
}

async function versionOfGo(): Promise<string | undefined> {
  try {
    const { code, stdout } = await new Deno.Command("go", { args: ["version"], cwd: SOURCES })
      .output();
    return code === 0 ? new TextDecoder().decode(stdout) : undefined;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return undefined;
    throw error;
  }
}

async function hashOfSources(goVersion: string): Promise<string> {
  const names: string[] = [];
  for await (const { name } of Deno.readDir(SOURCES)) {
    if (/\.go$|^go\.(mod|sum)$/.test(name)) names.push(name);
  }
  const parts = [goVersion];
  for (const name of names.sort()) {
    parts.push(name, await Deno.readTextFile(new URL(name, SOURCES)));
  }
  const bytes = new TextEncoder().encode(JSON.stringify(parts));
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex().slice(0, 16);
}

/** The result appears under its name only when it is whole: two test runs may build at once. */
async function build(path: string): Promise<void> {
  const unfinished = `${path}.${crypto.randomUUID()}`;
  const { code, stderr } = await new Deno.Command("nice", {
    args: ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", unfinished, "."],
    cwd: SOURCES,
  }).output();
  if (code !== 0) {
    throw new Error(
      `Cannot build tests/apiserver: go build ended with ${code}: ${
        new TextDecoder().decode(stderr)
      }`,
    );
  }
  await Deno.rename(unfinished, path);
}

async function exists(path: string): Promise<boolean> {
  try {
    await Deno.stat(path);
    return true;
  } catch (error) {
    if (error instanceof Deno.errors.NotFound) return false;
    throw error;
  }
}

if (import.meta.main) {
  const path = await buildApiserver();
  await Deno.stdout.write(
    new TextEncoder().encode(`${path ?? "There is no Go on the PATH: nothing was built"}\n`),
  );
}
