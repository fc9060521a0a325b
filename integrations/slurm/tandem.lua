-- Tandem in Slurm's job_submit.lua: a job with --gpu-mem asks for shards, which Slurm schedules.
--
--   local tandem = dofile("/usr/local/share/tandem/slurm/tandem.lua")
--   tandem.largest = 76            -- see below
--   function slurm_job_submit(job, partitions, uid) return tandem.submit(job) end
--   function slurm_job_modify(job, record, partitions, uid) return tandem.modify(job, uid) end
--   return slurm.SUCCESS
--
-- Where job_submit.lua has functions already, they call these, and return what is not SUCCESS.

local tandem = {
  -- What one shard stands for, in bytes of GPU memory.
  shard = 2 ^ 30,

  -- Shards that one job may ask for: what can be shared of the largest GPU in the cluster, whatever the
  -- number of shards in gres.conf. A job that asks for more is refused. nil: it fails on its node, or waits.
  largest = nil,

  -- Who may use a class of work. A class without an entry is for all.
  -- Example: production = {qos = {"high"}, partition = {"serving"}, account = {"web"}}
  classes = {production = {}},

  -- The largest weight of --gpu-share, in numbers. Shares in percent need `percent = true`.
  most_share = 1,
  percent = false,
}

local units = {K = 2 ^ 10, M = 2 ^ 20, G = 2 ^ 30, T = 2 ^ 40}

local function refuse(text, ...)
  slurm.log_user("tandem: " .. text, ...)
  return slurm.ESLURM_INVALID_GRES or slurm.ERROR
end

-- The options of the plugin, as srun, sbatch and salloc send them: {gpu_mem = "20G"}.
local function options(job)
  local found = {}
  for _, entry in pairs(job.spank_job_env or {}) do
    local name, value = string.match(entry, "^_SLURM_SPANK_OPTION_tandem_([%w_]+)=(.*)$")
    if name then found[name] = value end
  end
  return found
end

-- Bytes, or nil. The plugin has checked the value; a forged one gets no further than this.
local function bytes(text)
  local number, unit = string.match(text, "^(%d+%.?%d*)([KMGT])i?B?$")
  return number and tonumber(number) * units[unit]
end

local function has(list, value)
  for _, each in ipairs(list or {}) do
    if each == value then return true end
  end
  return false
end

local function may_use(job, class)
  local who = tandem.classes[class]
  if not who then return true end
  return has(who.qos, job.qos or job.default_qos) or has(who.partition, job.partition) or
    has(who.account, job.account or job.default_account)
end

-- Why the share is too large, or nil.
local function wrong_share(text)
  local percent = string.match(text, "^[%d.]+%%$")
  if percent and tandem.percent then return nil end
  if percent then return "--gpu-share in percent is not for users of this cluster" end
  local weight = tonumber(text)
  if weight and weight <= tandem.most_share then return nil end
  return string.format("--gpu-share=%s is above %g, the most on this cluster", text, tandem.most_share)
end

local function asks_for_gpus(job)
  for _, field in ipairs({"tres_per_job", "tres_per_node", "tres_per_socket", "tres_per_task"}) do
    local tres = job[field] or ""
    if string.find(tres, "gpu") or string.find(tres, "shard") then return true end
  end
  return false
end

-- For slurm_job_submit.
function tandem.submit(job)
  local asked = options(job)
  if not asked.gpu_mem then
    if asked.gpu_class or asked.gpu_share then
      return refuse("--gpu-class and --gpu-share need --gpu-mem")
    end
    return slurm.SUCCESS
  end
  local size = bytes(string.match(asked.gpu_mem, "^[^:]*"))
  if not size then return refuse("--gpu-mem=%s is no size", asked.gpu_mem) end
  if asks_for_gpus(job) then
    return refuse("a job has --gpu-mem or whole GPUs (--gres, --gpus), not both")
  end
  local shards = math.ceil(size / tandem.shard)
  if tandem.largest and shards > tandem.largest then
    return refuse("--gpu-mem=%s exceeds the largest GPU: ask for %s at most",
      asked.gpu_mem, tandem.text(tandem.largest * tandem.shard))
  end
  if asked.gpu_class and not may_use(job, asked.gpu_class) then
    return refuse("the class %s is not for this user, partition or QOS", asked.gpu_class)
  end
  local wrong = asked.gpu_share and wrong_share(asked.gpu_share)
  if wrong then return refuse("%s", wrong) end
  local others = job.tres_per_node
  local shard = string.format("gres:shard:%d", shards)
  job.tres_per_node = (others and others ~= "") and (others .. "," .. shard) or shard
  return slurm.SUCCESS
end

-- For slurm_job_modify: shards are what was promised for the job's memory.
function tandem.modify(job, uid)
  if uid ~= 0 and asks_for_gpus(job) then
    return refuse("the GPUs of a job cannot be changed; cancel it and submit it again")
  end
  return slurm.SUCCESS
end

-- Bytes for people.
function tandem.text(size)
  for _, unit in ipairs({"T", "G", "M"}) do
    if size >= units[unit] then return string.format("%g%s", size / units[unit], unit) end
  end
  return string.format("%gK", size / units.K)
end

return tandem
