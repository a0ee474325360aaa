// deno-lint-ignore-file no-console -- what it prints is what it is for
/**
 * `deno task test:uml [FILE…] [--part 1/2] [--filter TEXT]`: boots user-mode Linux and runs the tests
 * of this folder in it, all in one boot. They print TAP; the last line is the one that `deno test`
 * ends with. A guest has one processor: `--part` runs about half of the files, so that a second guest
 * can run the others.
 *
 * Exits with the code of the tests; 124 if they took too long, 125 if the guest died.
 */
import { parseArgs } from "@std/cli/parse-args";
import { bundlePrograms } from "../support/drivers/program_file.ts";
import { isMissing } from "../support/requirement.ts";
import {
  type GuestEnd,
  runInGuest,
  userModeLinuxRequirements,
} from "../support/stages/user_mode_linux.ts";

/** Takes a stream in pieces as they come. */
class TapCount {
  readonly #decoder = new TextDecoder();
  #rest = "";
  passed = 0;
  failed = 0;
  ignored = 0;

  /** Steps of a test are indented, and belong to its own line. */
  take(bytes: Uint8Array): void {
    const lines = (this.#rest + this.#decoder.decode(bytes, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    for (const line of lines) {
      if (/^(not )?ok \d+ .*# SKIP/i.test(line)) this.ignored++;
      else if (/^ok \d+/.test(line)) this.passed++;
      else if (/^not ok \d+/.test(line)) this.failed++;
    }
  }
}

const ROOT = new URL("../../", import.meta.url).pathname;
/**
 * System calls take 10 to 20 times as long in the guest as outside, more if other programs run at
 * the same time.
 */
const SLOWNESS = 25;
const MODULES: readonly string[] = [
  ...["dummy", "veth", "bridge", "overlay"],
  ...["ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_lblc", "ip_vs_lblcr"],
  ...["ip_vs_dh", "ip_vs_sh", "ip_vs_sed", "ip_vs_nq", "ip_vs_mh"],
  ...["ip_set", "ip_set_hash_ip", "ip_set_hash_ipport", "ip_set_hash_ipportip"],
  ...["ip_set_hash_ipportnet", "ip_set_bitmap_port", "xt_set", "xt_ipvs"],
  ...["nf_conntrack", "nf_conntrack_netlink"],
  // For policies, next to what their rules load by themselves.
  ...["br_netfilter", "ip_set_hash_net", "xt_physdev"],
];
/** The files of the first part, which take as long as all others. A new file is in the second part. */
const FIRST_PART: readonly string[] = ["packet_flow_test.ts", "ipvs_test.ts", "trace_test.ts"];
/** As deno.json has them for tests in namespaces. */
const RIGHTS: readonly string[] = [
  ...["--allow-net", "--allow-read", "--allow-write", "--allow-env", "--allow-run"],
  "--allow-sys=hostname,networkInterfaces,osRelease,uid",
];

if (isMissing("deno task test:uml", userModeLinuxRequirements())) Deno.exit(0);

const flags = parseArgs(Deno.args, { string: ["filter", "limit", "part"] });
const count = new TapCount();
const startedAt = performance.now();
const abort = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  Deno.addSignalListener(signal, () => abort.abort());
}
Deno.exit(report(await runTests(flags._.map(String))));

/** Cached outside: the guest sees the cache, and has no network. Types are for `deno task check`. */
async function prepare(files: readonly string[]): Promise<void> {
  const args = ["test", "--no-run", "--no-check", "--quiet", "--frozen", ...files, "main.ts"];
  const { code } = await new Deno.Command(Deno.execPath(), { args, cwd: ROOT }).spawn().status;
  if (code !== 0) Deno.exit(code);
}

/** The test files of this folder, or of one part of it. */
function filesOfPart(part: string | undefined): readonly string[] {
  const names = [...Deno.readDirSync(`${ROOT}tests/uml`)].map(({ name }) => name)
    .filter((name) => name.endsWith("_test.ts")).sort();
  const isIn = (name: string) => FIRST_PART.includes(name) === (part === "1/2");
  if (part !== undefined && part !== "1/2" && part !== "2/2") {
    throw new RangeError(`Cannot run part '${part}': expected 1/2 or 2/2`);
  }
  return names.filter((name) => part === undefined || isIn(name))
    .map((name) => `tests/uml/${name}`);
}

/** Each program is bundled: opening the source's hundreds of files takes seconds in the guest. */
async function runTests(given: readonly string[]): Promise<GuestEnd> {
  const files = given.length > 0 ? given : filesOfPart(flags["part"]?.toString());
  await prepare(files);
  const bundles = await Deno.makeTempDir({ prefix: "kube-relay-bundles-" });
  try {
    await bundlePrograms(bundles);
    return await runGuest(files, bundles);
  } finally {
    await Deno.remove(bundles, { recursive: true });
  }
}

async function runGuest(files: readonly string[], bundles: string): Promise<GuestEnd> {
  const cache = Deno.env.get("DENO_DIR") ?? `${Deno.env.get("HOME")}/.cache/deno`;
  const filter = flags["filter"] === undefined ? [] : ["--filter", String(flags["filter"])];
  return await runInGuest({
    // An npm package named deno is a script that starts the executable by way of Node.
    command: [
      ...[Deno.execPath(), "test", "--no-prompt", "--no-check", "--cached-only", "--frozen"],
      ...["--reporter=tap", ...RIGHTS, ...filter, ...files],
    ],
    environment: {
      DENO_DIR: cache,
      DEADLINE_FACTOR: String(SLOWNESS),
      KUBE_RELAY_BUNDLES: bundles,
      KUBE_RELAY_GUEST: "1",
      REQUIRE_ALL: Deno.env.get("REQUIRE_ALL") ?? "",
    },
    folder: ROOT,
    modules: MODULES,
    writable: [cache],
    limitSeconds: Number(flags["limit"] ?? 4200),
    memoryMiB: 1536,
    onOutput(bytes) {
      Deno.stdout.writeSync(bytes);
      count.take(bytes);
    },
    signal: abort.signal,
  });
}

/** Says how it ended; returns the exit code. */
function report(end: GuestEnd): number {
  const { passed, failed, ignored } = count;
  const seconds = Math.round((performance.now() - startedAt) / 1000);
  const counts = `${passed} passed | ${failed} failed | ${ignored} ignored (${seconds}s)`;
  switch (end.kind) {
    case "ended":
      console.log(`\n${end.code === 0 ? "ok" : "FAILED"} | ${counts}`);
      return end.code;
    case "too long":
      console.error(
        `\nThe guest was ended: it took longer than it may; --limit SECONDS gives more`,
      );
      console.log(`FAILED | ${counts}`);
      return 124;
    case "died":
      console.error(`\nThe guest died before the tests came to their end: ${end.words.trim()}`);
      console.log(`FAILED | ${counts}`);
      return 125;
  }
}
