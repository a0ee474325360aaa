// deno-lint-ignore-file no-console -- its output is what it is for
/** Runs a measurement in a folder of its own, for the task that is the only argument, prints it and exits. */
export async function runBenchTask<Task>(
  measure: (folder: string, task: Task) => Promise<unknown>,
): Promise<never> {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-bench-" });
  try {
    console.log(JSON.stringify(await measure(folder, JSON.parse(Deno.args[0] ?? ""))));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
  Deno.exit(0);
}
