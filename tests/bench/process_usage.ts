/**
 * CPU time and memory of a process, as the kernel counts them.
 *
 * @module
 */

/** Clock ticks a second; 100 on every Linux that Debian runs on. */
const TICKS_PER_SECOND = 100;

/** CPU seconds that a process has used, with those of its children. */
export async function cpuSeconds(pid: number): Promise<number> {
  const { own, children } = await cpuShares(pid);
  return own + children;
}

/** CPU seconds that a process has used, and those of its children, ended or not. */
export async function cpuShares(
  pid: number,
): Promise<{ readonly own: number; readonly children: number }> {
  const { own, ended } = sharesOf(await readProc(pid, "stat"));
  let children = ended;
  for (const child of await childrenOf(pid)) {
    // It may have ended meanwhile.
    const text = await readProc(child, "stat").catch(() => undefined);
    if (text !== undefined) children += sharesOf(text).own;
  }
  return { own, children };
}

async function childrenOf(pid: number): Promise<readonly number[]> {
  const { stdout } = await new Deno.Command("pgrep", { args: ["-P", `${pid}`] }).output();
  return new TextDecoder().decode(stdout).split("\n").filter(Boolean).map(Number);
}

function sharesOf(text: string): { readonly own: number; readonly ended: number } {
  // The command name may contain blanks and parentheses; the counters follow the last one.
  const fields = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number);
  const [user = 0, system = 0, childUser = 0, childSystem = 0] = fields.slice(11, 15);
  return {
    own: (user + system) / TICKS_PER_SECOND,
    ended: (childUser + childSystem) / TICKS_PER_SECOND,
  };
}

/**
 * CPU seconds that all processes of the machine have used since its start, including steal time of
 * the host.
 */
export async function busySeconds(): Promise<number> {
  const { stdout } = await new Deno.Command("cat", { args: ["/proc/stat"] }).output();
  const [, ...fields] = new TextDecoder().decode(stdout).split("\n", 1)[0]!.split(/\s+/);
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = fields.map(Number);
  return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND;
}

/** Resident memory of a process in MiB: now, and the most that it ever was. */
export async function residentMiB(pid: number): Promise<{ now: number; peak: number }> {
  const text = await readProc(pid, "status");
  const kib = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0);
  return { now: kib("VmRSS") / 1024, peak: kib("VmHWM") / 1024 };
}

/** CPU seconds of each thread of a process and its children since its start, by thread id. */
export async function threadSeconds(pid: number): Promise<ReadonlyMap<string, number>> {
  const folders = [pid, ...await childrenOf(pid)].map((each) => `/proc/${each}/task`);
  const { stdout } = await new Deno.Command("grep", {
    args: ["-rs", "--include=stat", "", ...folders],
  }).output();
  const lines = new TextDecoder().decode(stdout).matchAll(/task\/(\d+)\/stat:.*\) (.*)/g);
  return new Map(lines.map(([, thread, rest]) => {
    const [user = 0, system = 0] = rest!.split(" ").slice(11, 13).map(Number);
    return [thread!, (user + system) / TICKS_PER_SECOND];
  }));
}

async function readProc(pid: number, file: "stat" | "status"): Promise<string> {
  const path = `/proc/${pid}/${file}`;
  const { success, stdout } = await new Deno.Command("cat", { args: [path] }).output();
  if (!success) throw new Error(`Cannot read ${path}: the process has ended`);
  return new TextDecoder().decode(stdout);
}
