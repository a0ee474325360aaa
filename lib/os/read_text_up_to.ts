/**
 * Reads a text file that may be anything. Deno's own open() waits in the kernel for the writer of a
 * named pipe, on a thread that cannot be cancelled.
 *
 * @module
 */
import { constants, type FileHandle, open } from "node:fs/promises";
import { systemClock } from "./clock.ts";

const CHUNK_BYTES = 256 * 1024;

/** The interval at which a pipe is polled. */
const PIPE_PERIOD_MS = 20;
/** A pipe without data for this time, such as one without a writer, is given up. */
const PIPE_SILENCE_MS = 60_000;

/** The files that may be read. */
interface ReadTextOptions {
  /** Refuses anything but a regular file. @default {pipes and devices are read to their end} */
  readonly onlyFiles?: boolean;
  /** @default {the machine's} */
  readonly clock?: Pick<typeof systemClock, "now" | "sleep">;
}

/**
 * Returns the text of a file, pipe or device, without a byte order mark. Rejects with a RangeError
 * after `maxBytes`: a wrong path may lead to a file of many gigabytes or without end. No system
 * call waits: not for the writer of a pipe, nor for another program's lease.
 */
export async function readTextUpTo(
  path: string,
  maxBytes: number,
  { onlyFiles = false, clock = systemClock }: ReadTextOptions = {},
): Promise<string> {
  const file = await openAtOnce(path);
  try {
    const { isFile, isNamedPipe } = await kindOf(file, path);
    if (onlyFiles && !isFile) throw new TypeError("it is not a regular file");
    return await decodeUpTo(chunksOf(file, { isNamedPipe, clock }), maxBytes);
  } finally {
    await file.close();
  }
}

/** As {@linkcode readTextUpTo}, for standard input. It can be read once. */
export async function readStandardInput(maxBytes: number): Promise<string> {
  return await decodeUpTo(Deno.stdin.readable, maxBytes);
}

async function decodeUpTo(chunks: AsyncIterable<Uint8Array>, maxBytes: number): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  let total = 0;
  for await (const chunk of chunks) {
    total += chunk.length;
    if (total > maxBytes) {
      throw new RangeError(`it has more than ${maxBytes} bytes, which is the limit`);
    }
    text += decoder.decode(chunk, { stream: true });
  }
  return text + decoder.decode();
}

/** Rejects with the errors of Deno's `open()`, whose classes callers know. */
async function openAtOnce(path: string): Promise<FileHandle> {
  try {
    return await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (!(error instanceof Error) || !("code" in error)) throw error;
    const [, reason = error.message] = /^\w+: (.*), open /.exec(error.message) ?? [];
    const message = reason.charAt(0).toUpperCase() + reason.slice(1);
    throw new (ERROR_CLASSES[String(error.code)] ?? Error)(message, { cause: error });
  }
}

const ERROR_CLASSES: Readonly<
  Record<string, new (message: string, options: ErrorOptions) => Error>
> = {
  ENOENT: Deno.errors.NotFound,
  ENOTDIR: Deno.errors.NotADirectory,
  EACCES: Deno.errors.PermissionDenied,
};

/** Checks the opened file, which may have replaced the one that was checked before. */
async function kindOf(
  file: FileHandle,
  path: string,
): Promise<{ readonly isFile: boolean; readonly isNamedPipe: boolean }> {
  const status = await file.stat();
  if (status.isDirectory()) throw new TypeError("it is a folder");
  // An inherited pipe already has its writer.
  const isInherited = /^\/(?:dev|proc\/self)\/fd\//.test(path);
  return { isFile: status.isFile(), isNamedPipe: status.isFIFO() && !isInherited };
}

async function* chunksOf(
  file: FileHandle,
  { isNamedPipe, clock }: {
    readonly isNamedPipe: boolean;
    readonly clock: Required<ReadTextOptions>["clock"];
  },
): AsyncGenerator<Uint8Array> {
  const buffer = new Uint8Array(CHUNK_BYTES);
  // The kernel reports the end of a named pipe also before its writer has come.
  let mayWait = isNamedPipe;
  let heardAt = clock.now();
  for (;;) {
    const count = await readAtOnce(file, buffer);
    if (count === 0 && !mayWait) return;
    if (count !== 0) mayWait = false;
    if (count !== undefined && count > 0) {
      heardAt = clock.now();
      yield buffer.subarray(0, count);
    } else {
      if (clock.now() - heardAt >= PIPE_SILENCE_MS) {
        throw new Error(`nothing was written to this pipe for ${PIPE_SILENCE_MS / 1000} s`);
      }
      await clock.sleep(PIPE_PERIOD_MS);
    }
  }
}

/** `undefined` = nothing yet. */
async function readAtOnce(file: FileHandle, buffer: Uint8Array): Promise<number | undefined> {
  try {
    const { bytesRead } = await file.read(buffer, 0, buffer.length, null);
    return bytesRead;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "EAGAIN") return undefined;
    throw error;
  }
}
