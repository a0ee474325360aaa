/**
 * The files of the programs that tests start: kube-relay and test programs, from source or bundled.
 *
 * A bundle starts in half the time of the source, since one file is read instead of several hundred.
 * `deno run … tests/support/drivers/program_file.ts FOLDER` writes the bundles. Tests use them where
 * `KUBE_RELAY_BUNDLES` is that folder. The bundles do not change with the source.
 *
 * @module
 */

const ROOT = new URL("../../../", import.meta.url);
/** The programs that tests start most often. */
const PROGRAMS: readonly [string, ...string[]] = [
  "main.ts",
  "backends/userspace_worker.ts",
  "tests/support/drivers/patient_relay.ts",
  "tests/support/drivers/echo_server.ts",
  "tests/support/drivers/probe_client.ts",
  "tests/support/fakes/fake_api_program.ts",
];

/** Returns the path of a program's bundle, or of its source where there is no bundle. */
export function programFile(source: URL): string {
  const folder = Deno.env.get("KUBE_RELAY_BUNDLES");
  const path = source.pathname.replace(ROOT.pathname, "");
  if (folder === undefined || !PROGRAMS.includes(path)) return source.pathname;
  return `${folder}/${path.replace(/^.*\//, "").replace(/\.ts$/, ".js")}`;
}

/** Writes the bundles of all programs to a folder. Throws an Error if Deno cannot bundle one. */
export async function bundlePrograms(folder: string): Promise<void> {
  // The first run fetches the bundler; runs at the same time on an empty cache fail over its file.
  const [first, ...others] = PROGRAMS;
  await bundle(first, folder);
  await Promise.all(others.map((program) => bundle(program, folder)));
}

/** Each in a run of its own: `import.meta.main` is true in every file that a run is given. */
async function bundle(program: string, folder: string): Promise<void> {
  const args = ["bundle", "--quiet", "--frozen", "--platform=deno", `--outdir=${folder}`, program];
  const { success, stderr } = await new Deno.Command(Deno.execPath(), { args, cwd: ROOT }).output();
  if (!success) throw new Error(`Cannot bundle ${program}: ${new TextDecoder().decode(stderr)}`);
}

if (import.meta.main) {
  const [folder] = Deno.args;
  if (folder === undefined) throw new TypeError("Cannot write bundles: the folder is missing");
  await bundlePrograms(folder);
}
