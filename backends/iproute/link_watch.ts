/**
 * Follows the links and addresses of the machine by `ip monitor`: Deno has no netlink sockets.
 *
 * @module
 */
import type { Clock } from "../../lib/os/clock.ts";
import type { CommandRunner } from "../../lib/os/command_runner.ts";

/** The command runner needs a limit; a watch that reaches it begins again. */
const LONGEST_WATCH_MS = 86_400_000;
/** Time before a watch that ended begins again. */
const PAUSE_MS = 10_000;
/**
 * Lines of no interest: addresses of Services on these devices, those of layer 2, which are renewed
 * all the time for two seconds, and ports of a bridge or bond, such as those of pods, because the
 * bridge or bond has events of its own.
 */
const IGNORED = /^(Deleted )?\d+: (lo|kube-ipvs0)[:\s]|\smaster\s|\svalid_lft [0-2]sec\s/;

/**
 * Watches until the signal is aborted: calls `onChange` for each event of a link or an address, and `onEnd`
 * with the reason when a watch ends before. Never rejects; the callbacks must not throw.
 */
export async function watchLinks(
  { clock, commands }: { readonly clock: Clock; readonly commands: CommandRunner },
  onChange: () => void,
  onEnd: (reason: unknown) => void,
  signal: AbortSignal,
): Promise<void> {
  // `ip` notices a closed pipe only when it prints.
  const args = ["--pdeathsig", "KILL", "--", "ip", "-o", "monitor", "link", "address"];
  while (!signal.aborted) {
    try {
      const { stderr } = await commands.run("setpriv", args, {
        ...{ signal, timeoutMs: LONGEST_WATCH_MS },
        onLine: (line) => {
          if (line !== "" && !IGNORED.test(line)) onChange();
        },
      });
      onEnd(new Error(`'ip monitor' ended: ${stderr.trim() || "no reason"}`));
    } catch (error) {
      if (!signal.aborted) onEnd(error);
    }
    await clock.sleep(PAUSE_MS, signal).catch(() => {});
    // Events of the pause are lost.
    if (!signal.aborted) onChange();
  }
}
