//! Options of fio 3.33 that are not supported, so that errors distinguish a typing error from a
//! missing feature.

/// Names of fio's options, grouped by the supported option that is nearest in meaning.
const UNSUPPORTED: &[(Option<&str>, &str)] = &[
    // Load and concurrency.
    (
        Some("rate"),
        "rate_min ratemin rate_iops_min rate_process rate_cycle ratecycle rate_ignore_thinktime thinktime \
         thinktime_spin thinktime_blocks thinktime_blocks_type thinktime_iotime latency_target \
         latency_window latency_percentile latency_run max_latency",
    ),
    (Some("numjobs"), "max-jobs flow flow_id flow_watermark flow_sleep"),
    (Some("iodepth"), "io_submit_mode serialize_overlap"),
    (Some("fsync"), "fsync_on_close write_barrier sync_file_range sync create_fsync"),
    // Engine details.
    (
        Some("ioengine"),
        "hipri hipri_percentage fixedbufs registerfiles sqthread_poll sqthread_poll_cpu nonvectored \
         uncached nowait force_async userspace_reap iomem mem iomem_align mem_align hugepage-size \
         thp cmdprio_percentage cmdprio_class cmdprio cmdprio_bssplit cmd_type md_per_io_size \
         readfua writefua",
    ),
    // Files and sizes.
    (
        Some("size"),
        "fill_device fill_fs file_append \
         number_ios openfiles file_service_type zonesize \
         zonerange zoneskip zonemode zonecapacity max_open_zones job_max_open_zones read_beyond_wp \
         ignore_zone_limits zone_reset_threshold zone_reset_frequency",
    ),
    (Some("offset"), "offset_align offset_increment"),
    (
        Some("filename"),
        "unique_filename opendir lockfile allow_file_create fallocate \
         create_serialize create_only unlink unlink_each_loop \
         allow_mounted_write",
    ),
    // Start and end of jobs.
    (
        Some("runtime"),
        "trigger-timeout steadystate steadystate_duration steadystate_ramp_time \
         steadystate_check_interval ss ss_dur ss_ramp ss_interval",
    ),
    (Some("stonewall"), "wait_for exitall exit_what exitall_on_error"),
    (Some("random_distribution"), "random_generator percentage_random softrandommap"),
    (Some("randseed"), "use_os_rand"),
    (Some("rw"), "rw_sequencer unified_rw_reporting write_hint overwrite"),
    (
        Some("bs"),
        "bsrange blocksize_range bssplit bs_unaligned blocksize_unaligned bs_is_seq_rand ba \
         blockalign",
    ),
    (Some("direct"), "atomic pre_read"),
    // Contents and verification.
    (
        Some("verify"),
        "verify_only verifysort verifysort_nr verify_interval verify_offset \
         verify_pattern verify_pattern_interval verify_fatal verify_dump verify_async \
         verify_async_cpus verify_backlog verify_backlog_batch verify_state_load verify_state_save \
         verify_header_seed experimental_verify trim_percentage trim_verify_zero trim_backlog \
         trim_backlog_batch zero_buffers refill_buffers scramble_buffers buffer_pattern \
         buffer_compress_percentage buffer_compress_chunk dedupe_percentage dedupe_global \
         dedupe_mode dedupe_working_set_percentage continue_on_error error_dump ignore_error",
    ),
    (Some("group_reporting"), "stats per_job_logs"),
    (
        Some("thread"),
        "cpumask cpus_allowed cpus_allowed_policy numa_cpu_nodes numa_mem_policy nice prio \
         prioclass gtod_cpu",
    ),
    // Output.
    (
        Some("output-format"),
        "append-terse terse-version bandwidth-log eta-interval eta-newline \
         write_bw_log write_lat_log write_iops_log write_hist_log log_entries \
         log_avg_msec log_hist_msec log_hist_coarseness log_max_value log_offset log_prio \
         log_compression log_compression_cpus log_store_compressed log_unix_epoch \
         log_alternate_epoch log_alternate_epoch_clock_id block_error_percentiles bwavgtime \
         iopsavgtime clat_percentiles lat_percentiles slat_percentiles percentile_list \
         significant_figures disk_util disable_lat disable_clat disable_slat disable_bw \
         disable_bw_measurement gtod_reduce",
    ),
    // Cgroups and users; tenants are the counterpart here.
    (Some("tenant"), "cgroup cgroup_weight cgroup_nodelete uid gid lockmem"),
    // Of engines that work on something else than files on this machine.
    (
        None,
        "arguments program grace_time std_redirect donorname inplace exit_on_io_done interface ttl window_size mss \
         bindname verb brick volume single-instance conf skip_bad sg_write_mode stream_id stat_type touch_objects \
         uri nfs_url namenode hdfsdirectory chunk_size hdfs_use_direct https http_host http_user http_pass \
         http_s3_key http_s3_keyid http_s3_region http_s3_sse_customer_key http_s3_sse_customer_algorithm \
         http_s3_storage_class http_swift_auth_token http_mode http_verbose libblkio_driver libblkio_path \
         libblkio_pre_connect_props libblkio_num_entries libblkio_queue_size libblkio_pre_start_props \
         libblkio_vectored libblkio_write_zeroes_on_trim libblkio_wait_mode libblkio_force_enable_completion_eventfd \
         xnvme_async xnvme_sync xnvme_admin xnvme_dev_nsid xnvme_iovec cont object_class svcl gpu_dev_ids \
         cuda_io initiator",
    ),
    // Without a counterpart. The second half are options of the command, not of jobs.
    (
        None,
        "read_iolog read_iolog_chunked write_iolog replay_no_stall replay_redirect replay_align \
         replay_scale replay_skip replay_time_scale merge_blktrace_file merge_blktrace_scalars \
         merge_blktrace_iters exec_prerun exec_postrun ioscheduler clocksource profile kb_base \
         unit_base cpuload cpuchunks cpumode hostname port protocol nodelay listen pingpong \
         clustername rbdname pool clientname busy_poll debug parse-only merge-blktrace-only \
         cpuclock-test crctest cmdhelp enghelp showcmd readonly alloc-size warnings-fatal server \
         daemonize client remote-config idle-prof inflate-log trigger-file trigger trigger-remote \
         aux-path",
    ),
];

/// Looks up an unsupported option. `None` if fio does not have it or it is supported. Otherwise the
/// nearest supported option, if there is one.
pub(super) fn find(name: &str) -> Option<Option<&'static str>> {
    UNSUPPORTED
        .iter()
        .find(|(_, names)| names.split_whitespace().any(|known| known == name))
        .map(|&(nearest, _)| nearest)
}

pub(super) fn names() -> impl Iterator<Item = &'static str> {
    UNSUPPORTED.iter().flat_map(|(_, names)| names.split_whitespace())
}
